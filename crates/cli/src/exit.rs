//! The text of a failure, and the exit code of the program.

use std::process::ExitCode;

use zoned::Class;

/// The program's exit code, by the cause of the failure. The numbers are part of the interface: docs/cli.md lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The command failed, or a check found problems.
    Failure = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Another process holds the device.
    Busy = 3,
    /// There is no space left.
    NoSpace = 4,
    /// The device's data is damaged.
    Damaged = 5,
    /// An array's health is unknown; `array status` uses the lower numbers for the health that it knows.
    Unknown = 6,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// A failure with an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    code: Code,
    message: String,
}

impl Failure {
    /// The error of a refusal, or of a failure found by this program itself.
    pub fn refused(message: impl Into<String>) -> anyhow::Error {
        Failure { code: Code::Failure, message: message.into() }.into()
    }

    /// The error that an array's health is unknown.
    pub fn unknown(message: impl Into<String>) -> anyhow::Error {
        Failure { code: Code::Unknown, message: message.into() }.into()
    }

    /// The error of a wrong command line.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Failure { code: Code::Usage, message: message.into() }.into()
    }
}

/// The exit code for `error`.
pub fn code(error: &anyhow::Error) -> Code {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if let Some(error) = cause.downcast_ref::<zoned::Error>() {
            return code_of_device_error(error.kind());
        }
        if let Some(error) = cause.downcast_ref::<::fs::Error>() {
            return match error.kind() {
                ::fs::ErrorKind::Device(kind) => code_of_device_error(kind),
                _ => code_of_class(error.class()),
            };
        }
    }
    Code::Failure
}

fn code_of_device_error(kind: zoned::ErrorKind) -> Code {
    match kind {
        zoned::ErrorKind::Invalid | zoned::ErrorKind::Unsupported => Code::Usage,
        _ => code_of_class(kind.class()),
    }
}

fn code_of_class(class: Class) -> Code {
    match class {
        Class::Retry => Code::Busy,
        Class::NoSpace => Code::NoSpace,
        Class::Corrupt => Code::Damaged,
        Class::Invalid | Class::Fatal => Code::Failure,
    }
}

/// The text of an error in one line: first the cause, then its contexts from the innermost to the outermost. An error whose
/// text ends with its source's text adds only the part before it.
pub fn message(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for link in error.chain().collect::<Vec<_>>().into_iter().rev() {
        let text = link.to_string().replace('\n', " ");
        let source = parts.join("; ");
        match text.strip_suffix(parts.last().map_or("", String::as_str)) {
            _ if source.contains(&text) => {}
            Some(context) if !parts.is_empty() => parts.push(context.trim_end_matches(": ").to_owned()),
            _ => {
                // A source's text that an error repeats in the middle of its own stays where the error has it.
                parts.retain(|part| !text.contains(part.as_str()));
                parts.push(text);
            }
        }
    }
    parts.join("; ")
}

/// Whether an error says that the reader of stdout has closed it, as `head` does.
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
    fn the_cause_comes_first_and_once_and_its_contexts_follow() {
        let error = anyhow::anyhow!("no route").context("mounting: no route").context("listing '/'");
        assert_eq!(message(&error), "no route; mounting; listing '/'");
        let error = anyhow::anyhow!("no route").context("mounting: no route: try another").context("listing");
        assert_eq!(message(&error), "mounting: no route: try another; listing");
        assert_eq!(message(&anyhow::anyhow!("alone")), "alone");
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
