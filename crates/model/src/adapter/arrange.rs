//! The updates of an adapter in the order and under the names in which the base has the matrices that they change.

use cascadia_weights::{FileKind, ModelFiles, Tensor};

use super::AdapterFiles;
use super::files::error;
use super::pairs::{MOST_RANK, Pair, WRAPPED, floats};
use crate::arrange::ungrouped;
use crate::catalog::Catalog;
use crate::export::interleaved;
use crate::names::{Form, HeadRows, plain};
use crate::rope::RopeStyle;
use crate::spec::MixerSpec;
use crate::{ModelError, ModelSpec, arch};

/// The parts of a layer whose rows are those of a step, so that every row may have its own change.
const ADAPTABLE: [&str; 25] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "attn_q_a",
    "attn_q_b",
    "attn_kv_a_mqa",
    "attn_k_b",
    "attn_v_b",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_inp",
    "ffn_gate_exps",
    "ffn_up_exps",
    "ffn_down_exps",
    "ffn_gate_shexp",
    "ffn_up_shexp",
    "ffn_down_shexp",
    "ffn_gate_inp_shexp",
    "laurel_l",
    "laurel_r",
    "inp_gate",
    "proj",
];

/// What an adapter's tensors are arranged for.
pub(super) struct Base<'a> {
    pub(super) files: &'a ModelFiles,
    pub(super) catalog: Catalog<'a>,
    pub(super) spec: &'a ModelSpec,
    habits: arch::GgufHabits,
}

/// The two factors of an update, as floats: what is added is `up × down`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Factors {
    pub(super) rank: usize,
    /// `rank × inputs`.
    pub(super) down: Vec<f32>,
    /// `outputs × rank`, with the adapter's scale.
    pub(super) up: Vec<f32>,
    /// What rows of the changed matrix are scaled to.
    pub(super) magnitude: Option<Vec<f32>>,
}

/// An update of one matrix of the base.
pub(super) struct Placed {
    /// The tensor's GGUF name.
    pub(super) name: String,
    /// Which of its matrices.
    pub(super) member: usize,
    pub(super) factors: Factors,
}

/// A bias that an adapter has.
pub(super) struct PlacedBias {
    /// The GGUF name of the matrix that it belongs to.
    pub(super) name: String,
    /// Takes the place of the base's.
    pub(super) whole: Option<Vec<f32>>,
    /// Is added to it.
    pub(super) more: Option<Vec<f32>>,
}

/// Where a module lies in the base.
struct Place {
    name: String,
    expert: Option<usize>,
    form: Form,
}

impl<'a> Base<'a> {
    pub(super) fn new(files: &'a ModelFiles, spec: &'a ModelSpec) -> Result<Base<'a>, ModelError> {
        Ok(Base { files, catalog: arch::catalog(files)?, spec, habits: arch::gguf_habits(files)? })
    }

    /// Makes sure that an adapter was not made for another architecture.
    pub(super) fn check(&self, adapter: &AdapterFiles) -> Result<(), ModelError> {
        let Some(found) = adapter.files.metadata().value::<&str>("general.architecture")? else { return Ok(()) };
        let own = self.habits.architecture;
        if found == own {
            return Ok(());
        }
        let problem = format!("is `{found}`, and the model is `{own}`: the adapter was made for another one");
        Err(error(&adapter.files, "general.architecture", problem))
    }

    /// The updates of one module.
    pub(super) fn place(
        &self,
        adapter: &AdapterFiles,
        (module, pair): (&str, &Pair<'_>),
    ) -> Result<(Vec<Placed>, Option<PlacedBias>), ModelError> {
        let files = &adapter.files;
        if pair.parameter {
            return Ok((self.parameter(adapter, (module, pair))?, None));
        }
        let places = self.places(files, (module, pair))?;
        let bias = self.bias(adapter, (module, pair), &places)?;
        let (Some(down), Some(up)) = (pair.down, pair.up) else { return Ok((Vec::new(), bias)) };
        let scale = adapter.config.scale(module, pair.rank());
        let (down_values, mut up_values) = (floats(files, down)?, floats(files, up)?);
        up_values.iter_mut().for_each(|value| *value *= scale);
        let magnitude = pair.magnitude.map(|magnitude| floats(files, magnitude)).transpose()?;
        if magnitude.as_ref().is_some_and(|magnitude| magnitude.len() * pair.rank() != up_values.len()) {
            return Err(error(files, pair.magnitude.map_or("", Tensor::name), "has not one number for each output"));
        }
        let whole = Factors { rank: pair.rank(), down: down_values, up: up_values, magnitude };
        let mut placed = Vec::new();
        for place in places {
            let members = match (down.shape().len(), place.form) {
                (3, _) => whole.experts(down.shape()[0] as usize),
                (_, Form::KeysOfHeads(rows)) => {
                    self.heads(files, (pair, rows), |start, head| whole.keys(start, head))?
                }
                (_, Form::ValuesOfHeads(rows)) => {
                    let value =
                        |start: usize, head: HeadRows| whole.outputs(start + head.key..start + head.key + head.value);
                    self.heads(files, (pair, rows), value)?
                }
                _ => vec![whole.reordered(self.order(files, &place, whole.up.len() / whole.rank).as_deref())],
            };
            for (member, factors) in members.into_iter().enumerate() {
                let member = place.expert.unwrap_or(member);
                self.check_shape(files, (pair, &place.name, member), &factors)?;
                placed.push(Placed { name: place.name.clone(), member, factors });
            }
        }
        Ok((placed, bias))
    }

    /// The tensors of the base that a module stands for.
    fn places(&self, files: &ModelFiles, (module, pair): (&str, &Pair<'_>)) -> Result<Vec<Place>, ModelError> {
        let places = match files.kind() {
            FileKind::Gguf => vec![Place { name: module.to_owned(), expert: None, form: Form::Same }],
            FileKind::HuggingFace => self.named(&format!("{module}.weight")),
        };
        let known = |place: &Place| {
            let tied = self.spec.head.as_ref().is_some_and(|head| head.tied);
            let output = place.name == "output.weight" && tied;
            output || self.catalog.has(&place.name)
        };
        let places: Vec<Place> = places.into_iter().filter(known).collect();
        if places.is_empty() {
            let problem = format!("changes `{module}`, which this model does not have: the adapter is for another one");
            return Err(error(files, pair.name(), problem));
        }
        match places.iter().find(|place| !place.is_adaptable()) {
            None => Ok(places),
            Some(place) => {
                let problem = format!("changes `{}` in a way that is not supported", place.name);
                Err(error(files, pair.name(), problem))
            }
        }
    }

    /// The tensors that have this name in a folder.
    fn named(&self, stored: &str) -> Vec<Place> {
        let named = self.catalog.gguf_names(&plain(stored)).into_iter();
        named.map(|(name, expert, form)| Place { name, expert, form }).collect()
    }

    /// The updates of a parameter that holds the matrices of all experts. The name says only which module has it; which one it is
    /// is told by the shape.
    fn parameter(&self, adapter: &AdapterFiles, (module, pair): (&str, &Pair<'_>)) -> Result<Vec<Placed>, ModelError> {
        let (files, module) = (&adapter.files, module.trim_end_matches(WRAPPED));
        let (Some(down), Some(up)) = (pair.down, pair.up) else {
            return Err(error(files, pair.name(), "is a bias of experts, which is not supported"));
        };
        let [total, inputs] = [0, 1].map(|size| down.shape().get(size).map_or(0, |size| *size as usize));
        let outputs = up.shape().first().map_or(0, |size| *size as usize);
        let fits = |parameter: &String| {
            let stored = format!("{module}.{}", parameter.rsplit('.').next().unwrap_or(parameter));
            let mut places = self.named(&stored);
            places.retain(|place| place.holds_experts() && self.catalog.has(&place.name));
            let shapes = places.iter().map(|place| self.shape(&place.name));
            let (rows, count) = shapes.clone().fold((0, 0), |(rows, _), (own, _, count)| (rows + own, count));
            let alike = shapes.clone().all(|(_, columns, own)| columns == inputs && own == count);
            let whole = count > 0 && rows == outputs && total.is_multiple_of(count);
            (alike && whole).then_some((stored, places, count))
        };
        let Some((stored, places, count)) = adapter.config.parameters.iter().find_map(fits) else {
            let problem = format!("has shape {:?}, which no parameter of `{module}` fits", down.shape());
            return Err(error(files, down.name(), problem));
        };
        let rank = total / count;
        if rank as u64 > MOST_RANK || pair.magnitude.is_some() {
            let problem = format!("has rank {rank}; 1 to {MOST_RANK} are possible, without magnitudes");
            return Err(error(files, down.name(), problem));
        }
        let scale = adapter.config.scale(&stored, rank);
        let (down, mut up) = (floats(files, down)?, floats(files, up)?);
        up.iter_mut().for_each(|value| *value *= scale);
        let all = Factors { rank, down, up, magnitude: None };
        let mut placed = Vec::new();
        for Place { name, form, .. } in places {
            for member in 0..count {
                let factors = all.expert((member, count), form.outputs_of(outputs));
                placed.push(Placed { name: name.clone(), member, factors });
            }
        }
        Ok(placed)
    }

    /// In which order the base has the rows of a matrix, if in another one.
    fn order(&self, files: &ModelFiles, place: &Place, rows: usize) -> Option<Vec<usize>> {
        if let Form::GroupedHeads { heads, kv_heads } = place.form {
            return Some(ungrouped(heads, kv_heads, rows).collect());
        }
        let (layer, part) = place.name.strip_prefix("blk.")?.split_once('.')?;
        let MixerSpec::Attention(attention) = &self.spec.layers.get(layer.parse::<usize>().ok()?)?.mixer.part else {
            return None;
        };
        let heads = match part {
            "attn_q.weight" => attention.heads,
            "attn_k.weight" => attention.kv_heads,
            _ => return None,
        };
        if self.habits.rope != RopeStyle::Interleaved || !rows.is_multiple_of(2 * heads) {
            return None;
        }
        let order: Vec<usize> = interleaved(rows, heads).collect();
        match (files.kind(), self.files.kind()) {
            (FileKind::HuggingFace, FileKind::Gguf) => Some(order),
            (FileKind::Gguf, FileKind::HuggingFace) => {
                let mut back = vec![0; rows];
                order.into_iter().enumerate().for_each(|(row, stored)| back[stored] = row);
                Some(back)
            }
            _ => None,
        }
    }

    /// The updates of the heads of a latent cache.
    fn heads(
        &self,
        files: &ModelFiles,
        (pair, rows): (&Pair<'_>, HeadRows),
        one: impl Fn(usize, HeadRows) -> Factors,
    ) -> Result<Vec<Factors>, ModelError> {
        let up = pair.up.map_or(0, |up| up.shape()[0] as usize);
        let each = rows.key + rows.value;
        if pair.magnitude.is_some() || each == 0 || !up.is_multiple_of(each) {
            let problem = format!("has {up} outputs for heads of {each}; magnitudes (DoRA) are not supported here");
            return Err(error(files, pair.up.map_or("", Tensor::name), problem));
        }
        Ok((0..up).step_by(each).map(|start| one(start, rows)).collect())
    }

    /// The bias that an adapter gives a module.
    fn bias(
        &self,
        adapter: &AdapterFiles,
        (module, pair): (&str, &Pair<'_>),
        places: &[Place],
    ) -> Result<Option<PlacedBias>, ModelError> {
        let files = &adapter.files;
        let Some(tensor) = pair.bias.or(pair.up_bias) else { return Ok(None) };
        let [place @ Place { expert: None, form: Form::Same | Form::Transposed | Form::GroupedHeads { .. }, .. }] =
            places
        else {
            return Err(error(files, tensor.name(), "is a bias of experts or heads, which is not supported"));
        };
        let outputs = self.shape(&place.name).0;
        let read = |tensor: &Tensor| {
            let values = floats(files, tensor)?;
            if values.len() != outputs {
                let problem = format!("has {} numbers where the model has {outputs} outputs", values.len());
                return Err(error(files, tensor.name(), problem));
            }
            Ok(match self.order(files, place, outputs) {
                None => values,
                Some(order) => order.into_iter().map(|row| values[row]).collect(),
            })
        };
        let whole = pair.bias.map(&read).transpose()?;
        let mut more = pair.up_bias.map(&read).transpose()?;
        let scale = adapter.config.scale(module, pair.rank().max(1));
        more.iter_mut().flatten().for_each(|value| *value *= scale);
        Ok(Some(PlacedBias { name: place.name.clone(), whole, more }))
    }

    /// Outputs and inputs of a matrix of the base, and how many there are of it.
    pub(super) fn shape(&self, name: &str) -> (usize, usize, usize) {
        let name = if name == "output.weight" && !self.catalog.has(name) { "token_embd.weight" } else { name };
        self.catalog.matrix_shape(name)
    }

    fn check_shape(
        &self,
        files: &ModelFiles,
        (pair, name, member): (&Pair<'_>, &str, usize),
        factors: &Factors,
    ) -> Result<(), ModelError> {
        let (rows, columns, count) = self.shape(name);
        let refuse = |tensor: Option<&Tensor>, found: usize, wanted: usize, what: &str| {
            let problem =
                format!("has {found} {what} where `{name}` of the model has {wanted}: it is for another model");
            Err(error(files, tensor.map_or("", Tensor::name), problem))
        };
        if factors.down.len() != factors.rank * columns {
            return refuse(pair.down, factors.down.len() / factors.rank, columns, "inputs");
        }
        if factors.up.len() != factors.rank * rows {
            return refuse(pair.up, factors.up.len() / factors.rank, rows, "outputs");
        }
        if member >= count {
            return refuse(pair.down, member + 1, count, "experts");
        }
        Ok(())
    }
}

impl Place {
    /// Whether sequences of a step may have different updates of it.
    fn is_adaptable(&self) -> bool {
        let heads = matches!(self.form, Form::KeysOfHeads(_) | Form::ValuesOfHeads(_) | Form::GroupedHeads { .. });
        self.is_part() && (heads || matches!(self.form, Form::Same | Form::Transposed | Form::Row))
    }

    /// Whether it is what a parameter has of all experts.
    fn holds_experts(&self) -> bool {
        let form = matches!(self.form, Form::Same | Form::Transposed | Form::Rows(_) | Form::Columns(_));
        self.is_part() && form && self.expert.is_none()
    }

    /// Whether its rows are those of a step.
    fn is_part(&self) -> bool {
        match self.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((_, part)) => part.strip_suffix(".weight").is_some_and(|part| ADAPTABLE.contains(&part)),
            None => self.name == "output.weight",
        }
    }
}

impl Factors {
    /// The same with outputs in another order.
    fn reordered(&self, order: Option<&[usize]>) -> Factors {
        let Some(order) = order else { return self.clone() };
        let up = order.iter().flat_map(|&row| &self.up[row * self.rank..(row + 1) * self.rank]).copied().collect();
        let magnitude = self.magnitude.as_ref().map(|all| order.iter().map(|&row| all[row]).collect());
        Factors { rank: self.rank, down: self.down.clone(), up, magnitude }
    }

    /// Some of the outputs.
    fn outputs(&self, rows: std::ops::Range<usize>) -> Factors {
        let up = self.up[rows.start * self.rank..rows.end * self.rank].to_vec();
        Factors { rank: self.rank, down: self.down.clone(), up, magnitude: None }
    }

    /// The update of a head's keys, whose matrix is used the other way round: from its outputs to its inputs.
    fn keys(&self, start: usize, head: HeadRows) -> Factors {
        let rank = self.rank;
        let own = &self.up[start * rank..(start + head.key) * rank];
        Factors {
            rank,
            down: transposed(own, rank),
            up: transposed(&self.down, self.down.len() / rank),
            magnitude: None,
        }
    }

    /// The update of one of so many experts as PEFT has those of a parameter: their first matrices one after the other, the second
    /// ones with all experts side by side for each of the numbers between. Of its outputs only some.
    fn expert(&self, (expert, count): (usize, usize), outputs: impl Iterator<Item = usize>) -> Factors {
        let (rank, own) = (self.rank, self.down.len() / count);
        let row = |output: usize| (0..rank).map(move |at| self.up[(output * rank + at) * count + expert]);
        Factors {
            rank,
            down: self.down[expert * own..(expert + 1) * own].to_vec(),
            up: outputs.flat_map(row).collect(),
            magnitude: None,
        }
    }

    /// The updates of experts that lie together.
    fn experts(&self, count: usize) -> Vec<Factors> {
        let (down, up) = (self.down.len() / count.max(1), self.up.len() / count.max(1));
        let one = |expert: usize| Factors {
            rank: self.rank,
            down: self.down[expert * down..(expert + 1) * down].to_vec(),
            up: self.up[expert * up..(expert + 1) * up].to_vec(),
            magnitude: None,
        };
        (0..count).map(one).collect()
    }
}

/// A matrix of so many columns with rows and columns in each other's place.
pub(super) fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| values.iter().skip(column).step_by(columns)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Half;

    #[test]
    fn keys_of_heads_are_turned() {
        // Two outputs of rank one over three inputs.
        let factors = Factors { rank: 1, down: vec![1.0, 2.0, 3.0], up: vec![4.0, 5.0, 6.0], magnitude: None };
        let keys = factors.keys(1, HeadRows { key: 2, value: 0 });
        assert_eq!((keys.down, keys.up), (vec![5.0, 6.0], vec![1.0, 2.0, 3.0]));
    }

    #[test]
    fn experts_are_taken_out_of_a_parameter() {
        // Two experts of rank two, over one input and four outputs; numbers say output, place between and expert.
        let up = (0..4).flat_map(|output| [0, 1, 10, 11].map(|place| (100 * output + place) as f32)).collect();
        let all = Factors { rank: 2, down: vec![1.0, 2.0, 3.0, 4.0], up, magnitude: None };
        let one = all.expert((1, 2), Form::Rows(Half::Second).outputs_of(4));
        assert_eq!((one.down, one.up), (vec![3.0, 4.0], vec![201.0, 211.0, 301.0, 311.0]));
        let even = all.expert((0, 2), Form::Columns(Half::Even).outputs_of(4));
        assert_eq!(even.up, [100.0, 110.0, 300.0, 310.0]);
    }

    #[test]
    fn matrices_are_transposed() {
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
