//! Opens an array by its drives, or by the server that holds it.

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

/// Names an array: by its drives, or by the server that holds it.
#[derive(Clone, Debug, Args)]
pub struct ArrayArg {
    /// The array: array:URL,URL,URL, array:PATH of a file that lists them, or array:NAME
    #[arg(short, long, env = "FURROW_DEVICE", value_name = "URL", required_unless_present = "url")]
    device: Option<String>,
    /// The pages of the server that holds the array, such as http://127.0.0.1:9121; overrides --device
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File whose first line is that server's password
    #[arg(long, value_name = "FILE", requires = "url")]
    password_file: Option<PathBuf>,
}

/// Names an array by its drives, for the verbs that read the drives themselves.
#[derive(Clone, Debug, Args)]
pub struct MembersArg {
    /// The array: array:URL,URL,URL, array:PATH of a file that lists them, or array:NAME
    #[arg(short, long, env = "FURROW_DEVICE", value_name = "URL")]
    device: String,
}

/// An array that takes orders: fail, replace, rebuild, scrub.
pub enum ArrayHandle {
    /// An array that this process assembled.
    Local(OpenArray),
    /// An array that a server holds.
    Remote(Remote),
}

impl ArrayArg {
    /// The server that holds the array, where `--url` names one.
    pub fn server(&self) -> Result<Option<Remote>> {
        let Some(url) = &self.url else { return Ok(None) };
        Ok(Some(Remote::new(url, self.password_file.as_deref())?))
    }

    /// The array's status, as this command shows it. Writes nothing.
    pub fn view(&self, context: &Context) -> Result<ArrayView> {
        match self.server()? {
            Some(server) => server.view(),
            None => view(context, &open_members(context, self.members()?)?),
        }
    }

    /// Opens the array to give it orders. Where no server holds the array, this process assembles it, which writes to
    /// its drives and resumes a rebuild.
    pub fn open(&self, context: &Context) -> Result<ArrayHandle> {
        if let Some(server) = self.server()? {
            return Ok(ArrayHandle::Remote(server));
        }
        let named = self.members()?;
        let options = ::array::url::open_options(named)?;
        let array = context.wait(Array::open(open_members(context, named)?, options))?;
        Ok(ArrayHandle::Local(OpenArray::new(array, named)))
    }

    fn members(&self) -> Result<&str> {
        members_in_url(self.device.as_deref().unwrap_or_default())
    }
}

impl MembersArg {
    /// Opens the array's drives that exist.
    pub fn open(&self, context: &Context) -> Result<Vec<Arc<dyn ZonedDevice>>> {
        open_members(context, members_in_url(&self.device)?)
    }
}

impl ArrayHandle {
    /// The array's status, from the server or from the assembled array.
    pub fn view(&self) -> Result<ArrayView> {
        match self {
            ArrayHandle::Local(array) => Ok(array.view()),
            ArrayHandle::Remote(server) => server.view(),
        }
    }
}

/// The array's status according to the metadata of its drives.
pub fn view(context: &Context, members: &[Arc<dyn ZonedDevice>]) -> Result<ArrayView> {
    Ok(ArrayView::from(&context.wait(::array::status(members))?))
}

/// The part of an array's URL that names its members.
fn members_in_url(device: &str) -> Result<&str> {
    device.strip_prefix("array:").filter(|named| !named.is_empty()).ok_or_else(|| {
        Failure::usage(format!(
            "'{device}' is no array: the scheme is array:, as in --device array:URL,URL,URL, array:PATH or array:NAME"
        ))
    })
}

fn open_members(context: &Context, named: &str) -> Result<Vec<Arc<dyn ZonedDevice>>> {
    let members = ::array::url::members(named, context.driver());
    match members {
        Err(error) if matches!(error.kind(), ErrorKind::Held { .. }) => Err(error).context(
            "the array is in use: give the order to the server that holds it, --url http://127.0.0.1:9121",
        ),
        members => Ok(members?),
    }
}

/// A drive's URL with an absolute path: the server that opens the drive may run in another directory.
pub fn absolute(url: &str) -> Result<String> {
    let parsed: DeviceUrl = url.parse()?;
    let DeviceUrl::Emu(emu) = &parsed else { return Ok(url.to_owned()) };
    let Some(path) = emu.path().filter(|path| path.is_relative()) else { return Ok(url.to_owned()) };
    let whole = std::path::absolute(path).with_context(|| format!("making {url} absolute"))?;
    let parameters = url.split_once('?').map_or(String::new(), |(_, rest)| format!("?{rest}"));
    Ok(format!("emu:{}{parameters}", whole.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_drive_file_is_made_absolute() {
        let here = std::env::current_dir().unwrap();
        let whole = absolute("emu:a.img?zones=8").unwrap();
        assert_eq!(whole, format!("emu:{}?zones=8", here.join("a.img").display()));
        for same in ["emu:/tmp/a.img", "emu:mem?zones=8", "blk:/dev/nvme0n1", "nvme:serial=ZNS0"] {
            assert_eq!(absolute(same).unwrap(), same);
        }
    }
}
