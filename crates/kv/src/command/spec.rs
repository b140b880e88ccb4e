//! Name, arity, flags and keys of a command.

/// Name, arity, flags and keys of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The name in capitals.
    pub name: &'static str,
    /// Words with the name; negative: at least so many.
    pub arity: i16,
    /// The constants below, joined by `|`.
    pub flags: u8,
    /// Which words are keys.
    pub keys: Keys,
}

/// Which words of a command are keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// The first; 0: none.
    pub first: i8,
    /// The last; -1: the last word.
    pub last: i8,
    /// The distance from one to the next.
    pub step: i8,
}

impl Spec {
    /// Reads keys.
    pub const READ: u8 = 1;
    /// Writes keys.
    pub const WRITE: u8 = 2;
    /// Needs more room on the drive.
    pub const GROWS: u8 = 4;
    /// Time does not grow with the data.
    pub const FAST: u8 = 8;
    /// Walks the whole database: runs apart from the quick ones.
    pub const WALKS: u8 = 16;
    /// For the operator.
    pub const ADMIN: u8 = 32;
    /// Allowed before AUTH.
    pub const NO_AUTH: u8 = 64;

    /// Whether all of `flag` is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    /// Whether a command may have `words` words.
    pub fn takes(&self, words: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= least } else { words == least }
    }

    /// The error for a wrong number of words.
    pub fn arity_error(&self) -> String {
        format!("ERR wrong number of arguments for '{}' command", self.name.to_ascii_lowercase())
    }

    /// The places of the keys among `words` words.
    pub fn key_places(&self, words: usize) -> impl Iterator<Item = usize> {
        let first = usize::try_from(self.keys.first).unwrap_or(0);
        let last = match usize::try_from(self.keys.last) {
            Ok(last) => last,
            Err(_) => words.saturating_sub(usize::from(self.keys.last.unsigned_abs())),
        };
        let step = usize::try_from(self.keys.step).unwrap_or(1).max(1);
        (first..=last).step_by(step).filter(move |n| *n > 0 && *n < words)
    }
}
