//! The part of an adapter that belongs to some layers, as bytes: what a stage on another machine is sent.

use std::ops::Range;

use cascadia_kernels::{Dtype, Layout, Matrix, Shape};

use super::low_rank::LowRank;
use super::magnitude::Magnitudes;
use super::{Adapter, AdapterId, Update, Updates};

/// What is read is whole, or nothing.
struct Input<'a>(&'a [u8]);

impl Adapter {
    /// What it changes in these layers, arranged and rounded as it is computed with.
    pub fn part(&self, layers: &Range<u32>) -> Vec<u8> {
        let own: Vec<&Update> = self.updates.0.values().filter(|update| update.is_in(layers)).collect();
        let mut out = self.id.0.to_vec();
        put(self.rank, &mut out);
        put(own.len(), &mut out);
        for Update { name, members, bias } in own {
            put(name.len(), &mut out);
            out.extend_from_slice(name.as_bytes());
            put_floats(bias.as_deref(), &mut out);
            put(members.len(), &mut out);
            for member in members {
                put(usize::from(member.is_some()), &mut out);
                if let Some(LowRank { down, up, magnitudes }) = member {
                    put_matrix(down, &mut out);
                    put_matrix(up, &mut out);
                    put_floats(magnitudes.as_ref().map(Magnitudes::learned), &mut out);
                }
            }
        }
        out
    }

    /// Reads what [`Self::part`] wrote, for matrices whose outputs, inputs and number `shape` knows; or says what is wrong.
    pub(crate) fn from_part(
        bytes: &[u8],
        shape: impl Fn(&str) -> Option<(usize, usize, usize)>,
    ) -> Result<Adapter, String> {
        let mut input = Input(bytes);
        let read = input.adapter().filter(|_| input.0.is_empty());
        let adapter = read.ok_or_else(|| "an adapter came that makes no sense".to_owned())?;
        for update in adapter.updates.0.values() {
            let name = &update.name;
            let Some((outputs, inputs, count)) = shape(name) else {
                return Err(format!("an adapter changes `{name}`, which this stage does not have"));
            };
            let fits = |LowRank { down, up, magnitudes }: &LowRank| {
                let scaled = magnitudes.as_ref().is_none_or(|magnitudes| magnitudes.learned().len() == outputs);
                let (rank, columns) = (down.shape().rows, down.shape().columns);
                scaled && columns == inputs && up.shape() == Shape { rows: outputs, columns: rank }
            };
            let biased = update.bias.as_ref().is_none_or(|bias| bias.len() == outputs);
            if !biased || update.members.len() > count || !update.members.iter().flatten().all(fits) {
                return Err(format!("an adapter changes `{name}` as if it had another shape"));
            }
        }
        Ok(adapter)
    }
}

fn put(number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(number).expect("adapters are small").to_le_bytes());
}

/// Numbers after how many there are and one; nothing is zero.
fn put_floats(values: Option<&[f32]>, out: &mut Vec<u8>) {
    put(values.map_or(0, |values| values.len() + 1), out);
    values.into_iter().flatten().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}

fn put_matrix(matrix: &Matrix, out: &mut Vec<u8>) {
    let Shape { rows, columns } = matrix.shape();
    put(usize::from(matrix.dtype() != Dtype::F32), out);
    put(rows, out);
    put(columns, out);
    out.extend_from_slice(matrix.as_bytes());
}

impl<'a> Input<'a> {
    fn adapter(&mut self) -> Option<Adapter> {
        let id = AdapterId(self.bytes(32)?.try_into().ok()?);
        let rank = self.number()?;
        let count = self.number()?;
        let mut updates = Updates::default();
        for _ in 0..count {
            let length = self.number()?;
            let name = std::str::from_utf8(self.bytes(length)?).ok()?.to_owned();
            let bias = self.floats()?;
            let count = self.number()?;
            let members = (0..count).map(|_| self.member()).collect::<Option<Vec<_>>>()?;
            let update = updates.of(&name);
            (update.members, update.bias) = (members, bias);
        }
        Some(Adapter { id, rank, updates, embedding: None })
    }

    fn member(&mut self) -> Option<Option<LowRank>> {
        match self.number()? {
            0 => Some(None),
            1 => {
                let (down, up) = (self.matrix()?, self.matrix()?);
                Some(Some(LowRank { down, up, magnitudes: self.floats()?.map(Magnitudes::new) }))
            }
            _ => None,
        }
    }

    fn matrix(&mut self) -> Option<Matrix> {
        let (dtype, layout) = match self.number()? {
            0 => (Dtype::F32, Layout::Rows),
            1 => (Dtype::Q8_0, Layout::Interleaved),
            _ => return None,
        };
        let shape = Shape { rows: self.number()?, columns: self.number()? };
        let length = layout.matrix_bytes(dtype, shape.rows as u64, shape.columns as u64)?;
        let bytes = self.bytes(usize::try_from(length).ok()?)?.to_vec();
        Matrix::with_layout(std::sync::Arc::new(bytes), dtype, layout, shape).ok()
    }

    fn floats(&mut self) -> Option<Option<Vec<f32>>> {
        let Some(count) = self.number()?.checked_sub(1) else { return Some(None) };
        let bytes = self.bytes(count.checked_mul(4)?)?;
        Some(Some(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
    }

    fn number(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?) as usize)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::arrange::Factors;
    use super::super::low_rank::AdapterPrecision;
    use super::*;

    fn adapter() -> Adapter {
        let factors =
            Factors { rank: 2, down: vec![0.25; 2 * 64], up: vec![0.5; 3 * 2], magnitude: Some(vec![1.5; 3]) };
        let update = |base| LowRank::new(&factors, base, AdapterPrecision::LikeBase).expect("small numbers");
        let one =
            |name: &str, base, bias| Update { name: name.to_owned(), members: vec![None, Some(update(base))], bias };
        let mut updates = Updates::default();
        for (name, base, bias) in [
            ("blk.0.attn_q.weight", Dtype::F32, None),
            ("blk.1.attn_q.weight", Dtype::Q4_K, Some(vec![1.0; 3])),
            ("blk.2.attn_q.weight", Dtype::F32, None),
        ] {
            *updates.of(name) = one(name, base, bias);
        }
        Adapter { id: AdapterId([7; 32]), rank: 2, updates, embedding: None }
    }

    #[test]
    fn a_part_is_read_as_it_was_written() {
        let shape = |_: &str| Some((3, 64, 2));
        let part = adapter().part(&(1..3));
        let read = Adapter::from_part(&part, shape).expect("its own bytes");
        assert_eq!((read.targets(), read.id()), (vec!["blk.1.attn_q.weight", "blk.2.attn_q.weight"], adapter().id()));
        assert_eq!(read.part(&(1..3)), part);
        assert_eq!(read.bias("blk.1.attn_q.weight"), Some(&[1.0; 3][..]));
    }

    #[test]
    fn nonsense_is_refused() {
        let part = adapter().part(&(1..3));
        for shape in [None, Some((4, 64, 2)), Some((3, 32, 2)), Some((3, 64, 1))] {
            assert!(Adapter::from_part(&part, |_| shape).is_err(), "{shape:?}");
        }
        let shape = |_: &str| Some((3, 64, 2));
        for end in 0..part.len() {
            assert!(Adapter::from_part(&part[..end], shape).is_err(), "{end} bytes");
        }
        let mut longer = part.clone();
        longer.push(0);
        assert!(Adapter::from_part(&longer, shape).is_err());
    }
}
