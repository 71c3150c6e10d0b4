//! Chance that a seed reproduces.

use std::time::Duration;

/// A sequence of numbers that its seed decides (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The sequence number `index` of those of one seed.
    pub fn new(seed: u64, index: u64) -> Self {
        let mut dice = Self(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95));
        dice.roll();
        dice
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a number");
        usize::try_from(self.roll() % end).expect("a number below a number")
    }

    /// One of several things.
    pub fn one_of<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    /// One of several things, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, things: &[(usize, T)]) -> T {
        let mut at = self.below(things.iter().map(|(weight, _)| weight).sum());
        for (weight, thing) in things {
            if at < *weight {
                return *thing;
            }
            at -= weight;
        }
        unreachable!("the weights add up")
    }

    /// Whether a thing happens that happens once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A time between two, in milliseconds.
    pub fn time(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.roll() % (to - from))
    }
}
