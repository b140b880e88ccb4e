//! Name, arity, flags and keys of a command.

/// Name, arity, flags and keys of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The command's name in capitals.
    pub name: &'static str,
    /// Number of words, the command's name included; negative: at least so many.
    pub arity: i16,
    /// The flags, from the constants `READ` to `MOVABLE_KEYS`, joined by `|`.
    pub flags: u8,
    /// The words of the command that are keys.
    pub keys: Keys,
}

/// Which words of a command are keys: `first`, `first + step`, ... up to `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Index of the first word that is a key; 0: no word is.
    pub first: i8,
    /// Index of the last word that is a key; -1: the command's last word.
    pub last: i8,
    /// Distance from one key to the next, in words.
    pub step: i8,
}

impl Spec {
    /// The command reads keys.
    pub const READ: u8 = 1;
    /// The command writes keys.
    pub const WRITE: u8 = 2;
    /// The command needs more room on the drive.
    pub const NEEDS_ROOM: u8 = 4;
    /// The command's time does not grow with the data.
    pub const FAST: u8 = 8;
    /// The command walks the whole database: it runs apart from the quick commands.
    pub const WALKS: u8 = 16;
    /// The command is for the operator.
    pub const ADMIN: u8 = 32;
    /// The command is allowed before AUTH.
    pub const NO_AUTH: u8 = 64;
    /// Other words of the command say which words are keys: [`key_places`](super::key_places).
    pub const MOVABLE_KEYS: u8 = 128;

    /// Whether the command has all flags in `flag`.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    /// Whether a command may have `words` words.
    pub fn takes_words(&self, words: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= least } else { words == least }
    }

    /// The error reply for a wrong number of words.
    pub fn arity_error(&self) -> String {
        format!("ERR wrong number of arguments for '{}' command", self.name.to_ascii_lowercase())
    }
}

impl Keys {
    /// No word is a key.
    pub const NONE: Keys = Keys { first: 0, last: 0, step: 0 };

    /// The indices of the keys in a command of `words` words.
    pub(super) fn places(self, words: usize) -> impl Iterator<Item = usize> {
        let first = usize::try_from(self.first).unwrap_or(0);
        let last = match usize::try_from(self.last) {
            Ok(last) => last,
            Err(_) => words.saturating_sub(usize::from(self.last.unsigned_abs())),
        };
        let step = usize::try_from(self.step).unwrap_or(1).max(1);
        (first..=last).step_by(step).filter(move |n| *n > 0 && *n < words)
    }
}
