//! What a failure prints and which code the program ends with.

use std::process::ExitCode;

use zoned::Class;

/// Why the program ends other than well. The numbers are part of the interface: docs/cli.md lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// It did not work, or a check found problems.
    Failure = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Another process holds the device.
    Busy = 3,
    /// There is no room.
    NoSpace = 4,
    /// What the device holds is damaged.
    Damaged = 5,
    /// How an array is cannot be told: the lower numbers say how it is.
    Unknown = 6,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// A failure with a code of its own.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    message: String,
}

impl Failure {
    /// Something that takes the user's consent.
    pub fn refused(message: impl Into<String>) -> anyhow::Error {
        Failure { code: Code::Failure, message: message.into() }.into()
    }

    /// How an array is cannot be told.
    pub fn unknown(message: impl Into<String>) -> anyhow::Error {
        Failure { code: Code::Unknown, message: message.into() }.into()
    }

    /// A wrong command line.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Failure { code: Code::Usage, message: message.into() }.into()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The exit code for `error`.
pub fn code(error: &anyhow::Error) -> Code {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if let Some(error) = cause.downcast_ref::<zoned::Error>() {
            return of_device(error.kind());
        }
        if let Some(error) = cause.downcast_ref::<::fs::Error>() {
            return match error.kind() {
                ::fs::ErrorKind::Device(kind) => of_device(kind),
                _ => of_class(error.class()),
            };
        }
    }
    Code::Failure
}

fn of_device(kind: zoned::ErrorKind) -> Code {
    match kind {
        // A scheme that is not built yet is as wrong as one that there is not.
        zoned::ErrorKind::Invalid | zoned::ErrorKind::Unsupported => Code::Usage,
        _ => of_class(kind.class()),
    }
}

fn of_class(class: Class) -> Code {
    match class {
        Class::Retry => Code::Busy,
        Class::NoSpace => Code::NoSpace,
        Class::Corrupt => Code::Damaged,
        Class::Invalid | Class::Fatal => Code::Failure,
    }
}

/// The error and its causes in one line. Some errors repeat their cause in their own words: it is said once.
pub fn message(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let words = cause.to_string().replace('\n', " ");
        if line.is_empty() {
            line = words;
        } else if !line.contains(&words) {
            line.push_str(": ");
            line.push_str(&words);
        }
    }
    line
}

/// Whether the reader of our output went away, as `head` does: no reason to complain.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow::anyhow!("no route").context("mounting: no route").context("listing '/'");
        assert_eq!(message(&error), "listing '/': mounting: no route");
    }

    #[test]
    fn a_full_file_system_has_its_own_code() {
        let error =
            anyhow::Error::new(::fs::Error::new(::fs::ErrorKind::NoSpace, "append")).context("copying");
        assert_eq!(code(&error), Code::NoSpace);
    }

    #[test]
    fn a_held_device_has_its_own_code() {
        let held = zoned::Error::new(zoned::ErrorKind::Held { pid: 7 }, &"emu:a".into(), "open");
        assert_eq!(code(&held.into()), Code::Busy);
    }
}
