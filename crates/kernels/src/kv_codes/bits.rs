//! How many bits a number has, which integers they stand for, and where they lie.

/// How many bits a number has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeBits {
    /// Four levels, four numbers to a byte.
    Two,
    /// Eight levels: two bits as above, and the third in vectors of its own.
    Three,
    /// Sixteen levels, two numbers to a byte.
    Four,
    /// 255 levels, evenly spaced.
    Eight,
}

/// Where some bits of a number lie: in which byte, and how far they are shifted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitPlace {
    byte: usize,
    shift: usize,
}

/// Bytes that are loaded together: four numbers that are multiplied and added, of each of sixteen lanes.
pub(crate) const VECTOR: usize = 64;

/// Few levels are where they serve normally distributed numbers best (Lloyd and Max); rotated numbers are nearly that.
/// The outermost is 127, and `spread` is where it lies in standard deviations.
struct Levels {
    levels: &'static [i8],
    spread: f32,
}

const TWO: Levels = Levels { levels: &[-127, -38, 38, 127], spread: 1.5104 };
const THREE: Levels = Levels { levels: &[-127, -79, -45, -14, 14, 45, 79, 127], spread: 2.1519 };
const FOUR: Levels =
    Levels { levels: &[-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127], spread: 2.7326 };

impl CodeBits {
    /// All of them.
    pub const ALL: [CodeBits; 4] = [CodeBits::Two, CodeBits::Three, CodeBits::Four, CodeBits::Eight];

    /// What the codes stand for, the lowest first; nothing where levels are evenly spaced.
    pub(crate) const fn levels(self) -> &'static [i8] {
        match self {
            CodeBits::Two => TWO.levels,
            CodeBits::Three => THREE.levels,
            CodeBits::Four => FOUR.levels,
            CodeBits::Eight => &[],
        }
    }

    /// The greatest level, in standard deviations of normally distributed numbers.
    pub(crate) const fn spread(self) -> f32 {
        match self {
            CodeBits::Two => TWO.spread,
            CodeBits::Three => THREE.spread,
            CodeBits::Four => FOUR.spread,
            CodeBits::Eight => 0.0,
        }
    }

    /// The levels of codes up to fifteen, each with 128 added where `unsigned`; for kernels that look them up.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        expect(dead_code, reason = "the specification does not look levels up")
    )]
    pub(crate) const fn table(bits: usize, unsigned: bool) -> [i8; 16] {
        let levels = match bits {
            2 => TWO.levels,
            3 => THREE.levels,
            _ => FOUR.levels,
        };
        let (mut table, mut code) = ([0; 16], 0);
        while code < levels.len() {
            table[code] = if unsigned { levels[code] ^ -128 } else { levels[code] };
            code += 1;
        }
        table
    }

    /// Sixteens of lanes that share a vector.
    const fn planes(self) -> usize {
        match self {
            CodeBits::Two | CodeBits::Three => 4,
            CodeBits::Four => 2,
            CodeBits::Eight => 1,
        }
    }

    /// Bits of a number that lie together.
    const fn width(self) -> usize {
        8 / self.planes()
    }

    /// Vectors for four numbers of every lane, third bits left out.
    pub(crate) fn vectors(self, lanes: usize) -> usize {
        lanes.div_ceil(16).div_ceil(self.planes())
    }

    /// Bytes of `rows` numbers, which products add up, for each of `lanes` results. A vector of third bits serves eight rows.
    pub fn bytes(self, rows: usize, lanes: usize) -> usize {
        let vectors = match self {
            CodeBits::Three => rows.div_ceil(8) * 3,
            _ => rows.div_ceil(4),
        };
        vectors * self.vectors(lanes) * VECTOR
    }

    /// Of so many vectors or bytes, those that come before the third bits.
    pub(crate) const fn without_third(self, all: usize) -> usize {
        if matches!(self, CodeBits::Three) { all / 3 * 2 } else { all }
    }

    /// Stores the codes of all lanes of a row where all bits are zero.
    #[inline(always)]
    pub(crate) fn put(self, codes: &mut [u8], row: usize, of_lanes: &[u8]) {
        let (lanes, mask) = (of_lanes.len(), ((1u16 << self.width()) as u8).wrapping_sub(1));
        for (sixteen, of_lanes) in of_lanes.chunks(16).enumerate() {
            let place = self.place(row, 16 * sixteen, lanes);
            for (byte, code) in codes[place.byte..].iter_mut().step_by(4).zip(of_lanes) {
                *byte |= (code & mask) << place.shift;
            }
            if self == CodeBits::Three {
                let third = self.third_place(row, 16 * sixteen, lanes, codes.len());
                for (byte, code) in codes[third.byte..].iter_mut().step_by(4).zip(of_lanes) {
                    *byte |= code >> 2 << third.shift;
                }
            }
        }
    }

    /// The integer that the code of a row and a lane stands for.
    pub(crate) fn get(self, codes: &[u8], (row, lane, lanes): (usize, usize, usize)) -> i32 {
        let place = self.place(row, lane, lanes);
        let mask = (1u16 << self.width()) as u8;
        let mut code = codes[place.byte] >> place.shift & mask.wrapping_sub(1);
        if self == CodeBits::Three {
            let third = self.third_place(row, lane, lanes, codes.len());
            code |= (codes[third.byte] >> third.shift & 1) << 2;
        }
        match self.levels() {
            [] => i32::from(code) - 128,
            levels => i32::from(levels[usize::from(code)]),
        }
    }

    #[inline(always)]
    fn place(self, row: usize, lane: usize, lanes: usize) -> BitPlace {
        let (sixteen, planes) = (lane / 16, self.planes());
        let vector = row / 4 * self.vectors(lanes) + sixteen / planes;
        BitPlace { byte: vector * VECTOR + lane % 16 * 4 + row % 4, shift: sixteen % planes * self.width() }
    }

    #[inline(always)]
    fn third_place(self, row: usize, lane: usize, lanes: usize, bytes: usize) -> BitPlace {
        let sixteen = lane / 16;
        let vector = row / 8 * self.vectors(lanes) + sixteen / 4;
        let byte = self.without_third(bytes) + vector * VECTOR + lane % 16 * 4 + row % 4;
        BitPlace { byte, shift: row / 4 % 2 * 4 + sixteen % 4 }
    }
}
