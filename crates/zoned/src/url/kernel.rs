//! URLs of the schemes `blk:` and `nvme:`: a drive of this machine, by its device node or its serial number.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sys::EngineKind;

use super::query::{Before, LOG_TARGET, STAGE, invalid, parameters};
use crate::discover::{DriveName, Interface, Machine};
use crate::{Driver, Error, ErrorKind, KernelOptions, Result, ZonedDevice, blk, nvme};

/// Parameters of the URL of a drive of this machine, with descriptions.
pub const KERNEL_PARAMETERS: &[(&str, &str)] = &[
    (
        "io",
        "ring (io_uring) or threads (system calls; of nvme: ioctls); by default the first that the machine has",
    ),
    ("namespace", "which one, where a serial number's controller has several"),
    STAGE,
    LOG_TARGET,
];

/// The URL of a drive of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelUrl {
    interface: Interface,
    named: DriveName,
    options: KernelOptions,
    before: Before,
}

impl KernelUrl {
    /// Parses the part of a drive's URL after `blk:` or `nvme:`.
    pub(super) fn parse(url: &str, rest: &str) -> Result<KernelUrl> {
        let interface = if url.starts_with("nvme:") { Interface::Nvme } else { Interface::Block };
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = parameters(url, query, KERNEL_PARAMETERS)?;
        let engine = match (parameters.get("io").map(String::as_str), interface) {
            (None, _) => None,
            (Some("ring"), _) => Some(EngineKind::Ring),
            (Some("threads"), _) | (Some("ioctl"), Interface::Nvme) => Some(EngineKind::Threads),
            (Some(other), _) => return Err(invalid(url, format!("io={other}: use ring or threads"))),
        };
        let namespace = match parameters.get("namespace") {
            None => None,
            Some(text) => match text.parse::<u32>() {
                Ok(number) if number > 0 => Some(number),
                _ => return Err(invalid(url, format!("namespace={text}: a number from 1 on is needed"))),
            },
        };
        let serial = name.strip_prefix("serial=");
        let named = match serial.unwrap_or(name) {
            "" => {
                let example =
                    if interface == Interface::Nvme { "nvme:/dev/ng0n1" } else { "blk:/dev/nvme0n1" };
                let advice = "`furrow device list` shows the drives";
                return Err(invalid(url, format!("no device: use {example}, or serial=TEXT; {advice}")));
            }
            path if serial.is_none() && path.starts_with('/') => {
                if namespace.is_some() {
                    return Err(invalid(
                        url,
                        "namespace: a device node has one already; it goes with a serial",
                    ));
                }
                DriveName::Path(PathBuf::from(path))
            }
            text => DriveName::Serial { text: text.to_owned(), namespace },
        };
        let before = Before::parse(url, &parameters)?;
        Ok(KernelUrl { interface, named, options: KernelOptions { engine }, before })
    }

    /// The interface.
    pub fn interface(&self) -> Interface {
        self.interface
    }

    /// The drive's name in the URL.
    #[cfg(test)]
    pub(crate) fn named(&self) -> &DriveName {
        &self.named
    }

    /// Opens the drive.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Invalid`] if the node is no zoned drive or the wrong node of a
    /// zoned drive; [`ErrorKind::InUse`] if the kernel uses the drive; [`ErrorKind::Held`] if a process has
    /// the drive open; [`ErrorKind::Denied`] without permission.
    pub fn open(&self, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
        let machine = Machine::here();
        let refused = |(kind, why): (ErrorKind, String)| {
            Error::new(kind, &Arc::from(self.to_string()), "open").because(why)
        };
        let target = machine.find(self.interface, &self.named).map_err(refused)?;
        machine.refuse_in_use(&target).map_err(refused)?;
        let drive = match self.interface {
            Interface::Block => blk::open(&target.node, &self.options, driver),
            Interface::Nvme => nvme::open(&target.node, &self.options, driver),
        };
        self.before.drive(drive?, 1)
    }
}

impl fmt::Display for KernelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.interface.scheme())?;
        let mut parameters = Vec::new();
        match &self.named {
            DriveName::Path(path) => write!(f, "{}", path.display())?,
            DriveName::Serial { text, namespace } => {
                write!(f, "serial={text}")?;
                parameters.extend(namespace.map(|namespace| format!("namespace={namespace}")));
            }
        }
        parameters.extend(self.options.engine.map(|engine| match engine {
            EngineKind::Ring => "io=ring".to_owned(),
            EngineKind::Threads => "io=threads".to_owned(),
        }));
        parameters.extend(self.before.stage.map(|window| format!("stage={window}")));
        parameters.extend(self.before.log_target_text().map(|text| format!("log-target={text}")));
        for (parameter, joint) in parameters.iter().zip(std::iter::once('?').chain(std::iter::repeat('&'))) {
            write!(f, "{joint}{parameter}")?;
        }
        Ok(())
    }
}
