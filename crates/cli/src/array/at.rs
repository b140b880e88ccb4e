//! Where an array is: on drives that nobody has, or with the server that has them.

use std::path::PathBuf;
use std::sync::Arc;

use ::array::Array;
use anyhow::{Context as _, Result};
use clap::Args;
use server::array::{ArrayView, OpenArray};
use zoned::{DeviceUrl, ErrorKind, ZonedDevice};

use super::remote::Remote;
use crate::context::Context;
use crate::exit::Failure;

/// What an array is named by.
#[derive(Clone, Debug, Args)]
pub struct At {
    /// The array: array:URL,URL,URL, array:PATH of a file that lists them, or array:NAME
    #[arg(short, long, env = "FURROW_DEVICE", value_name = "URL", required_unless_present = "url")]
    device: Option<String>,
    /// The pages of the server that has the array, such as http://127.0.0.1:9121; goes before --device
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File whose first line is that server's password
    #[arg(long, value_name = "FILE", requires = "url")]
    password_file: Option<PathBuf>,
}

/// The same for what only the drives themselves tell.
#[derive(Clone, Debug, Args)]
pub struct DrivesAt {
    /// The array: array:URL,URL,URL, array:PATH of a file that lists them, or array:NAME
    #[arg(short, long, env = "FURROW_DEVICE", value_name = "URL")]
    device: String,
}

/// An array that can be given orders.
pub enum Place {
    /// Assembled by this process.
    Here(OpenArray),
    /// In a server.
    There(Remote),
}

impl At {
    /// The server, if one is named.
    pub fn server(&self) -> Result<Option<Remote>> {
        let Some(url) = &self.url else { return Ok(None) };
        Ok(Some(Remote::new(url, self.password_file.as_deref())?))
    }

    /// How the array is. Reads only.
    pub fn look(&self, context: &Context) -> Result<ArrayView> {
        match self.server()? {
            Some(server) => server.view(),
            None => look(context, &members(context, self.rest()?)?),
        }
    }

    /// The array, to give it orders. On drives that nobody has this assembles it, as any use of it does.
    pub fn open(&self, context: &Context) -> Result<Place> {
        if let Some(server) = self.server()? {
            return Ok(Place::There(server));
        }
        let rest = self.rest()?;
        let array = context.wait(Array::open(members(context, rest)?, ::array::OpenOptions::default()))?;
        Ok(Place::Here(OpenArray::new(array, rest)))
    }

    fn rest(&self) -> Result<&str> {
        rest(self.device.as_deref().unwrap_or_default())
    }
}

impl DrivesAt {
    /// The drives that are there.
    pub fn members(&self, context: &Context) -> Result<Vec<Arc<dyn ZonedDevice>>> {
        members(context, rest(&self.device)?)
    }
}

impl Place {
    /// How it is.
    pub fn view(&self) -> Result<ArrayView> {
        match self {
            Place::Here(array) => Ok(array.view()),
            Place::There(server) => server.view(),
        }
    }
}

/// What the drives say.
pub fn look(context: &Context, members: &[Arc<dyn ZonedDevice>]) -> Result<ArrayView> {
    Ok(ArrayView::from(&context.wait(::array::status(members))?))
}

fn rest(device: &str) -> Result<&str> {
    device.strip_prefix("array:").filter(|rest| !rest.is_empty()).ok_or_else(|| {
        Failure::usage(format!(
            "'{device}' is no array: --device array:URL,URL,URL, array:PATH or array:NAME"
        ))
    })
}

fn members(context: &Context, rest: &str) -> Result<Vec<Arc<dyn ZonedDevice>>> {
    let members = ::array::url::members(rest, context.driver());
    match members {
        Err(error) if matches!(error.kind(), ErrorKind::Held { .. }) => Err(error)
            .context("the array is in use; ask the server that has it, with --url http://127.0.0.1:9121"),
        members => Ok(members?),
    }
}

/// A drive's URL as another process understands it, whose directory may be another one.
pub fn absolute(url: &str) -> Result<String> {
    let parsed: DeviceUrl = url.parse()?;
    let DeviceUrl::Emu(emu) = &parsed else { return Ok(url.to_owned()) };
    let Some(path) = emu.path().filter(|path| path.is_relative()) else { return Ok(url.to_owned()) };
    let whole = std::path::absolute(path).with_context(|| format!("the place of {url}"))?;
    let parameters = url.split_once('?').map_or(String::new(), |(_, rest)| format!("?{rest}"));
    Ok(format!("emu:{}{parameters}", whole.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_file_is_named_to_others_by_its_whole_path() {
        let here = std::env::current_dir().unwrap();
        let whole = absolute("emu:a.img?zones=8").unwrap();
        assert_eq!(whole, format!("emu:{}?zones=8", here.join("a.img").display()));
        for same in ["emu:/tmp/a.img", "emu:mem?zones=8", "blk:/dev/nvme0n1", "nvme:serial=ZNS0"] {
            assert_eq!(absolute(same).unwrap(), same);
        }
    }
}
