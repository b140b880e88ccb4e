//! Loads profiles by name or from a file, and applies their geometry to a drive's settings.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;

use super::{Cache, Profile, Size};
use crate::Blocks;
use crate::emu::EmuOptions;

/// The drive profiles that are part of the program, and their text.
const BUILT_IN_PROFILES: &[(&str, &str)] = &[
    ("null", include_str!("../../../profiles/null.toml")),
    ("confzns", include_str!("../../../profiles/confzns.toml")),
    ("zn540", include_str!("../../../profiles/zn540.toml")),
    ("smallzone", include_str!("../../../profiles/smallzone.toml")),
    ("smr", include_str!("../../../profiles/smr.toml")),
];
/// Largest accepted profile file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Largest number of planes of an emulated drive, because each plane takes memory.
const MAX_PLANES: u64 = 1 << 16;

impl Profile {
    /// The names of the drive profiles that are part of the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN_PROFILES.iter().map(|(name, _)| *name)
    }

    /// The text of a drive profile that is part of the program, which users may take as a start for their
    /// own.
    pub fn text(name: &str) -> Option<&'static str> {
        BUILT_IN_PROFILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Loads a drive profile by name (`zn540`) or from a file (`./my.toml`). The error says what is wrong,
    /// and where.
    pub fn load(name: &str) -> Result<Profile, String> {
        if let Some(text) = Profile::text(name) {
            return Profile::parse(name, text);
        }
        if !(name.contains('/') || name.ends_with(".toml")) {
            let known: Vec<&str> = Profile::names().collect();
            return Err(format!(
                "unknown profile {name}; known are {}, or a file of your own as in ./my.toml",
                known.join(", ")
            ));
        }
        let failed = |e: std::io::Error| format!("{e} (reading the profile {name})");
        if std::fs::metadata(Path::new(name)).map_err(failed)?.len() > MAX_FILE_BYTES {
            return Err(format!("the profile {name} is longer than {MAX_FILE_BYTES} bytes: is it one?"));
        }
        Profile::parse(name, &std::fs::read_to_string(name).map_err(failed)?)
    }

    /// Parses a profile's text; `file` is the profile's name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Profile, String> {
        let refuse = |at: Option<usize>, why: &str| {
            let before = at.and_then(|at| text.get(..at)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            format!("{file}:{line}: {}", why.trim().replace('\n', ", "))
        };
        let profile: Profile =
            toml::from_str(text).map_err(|e| refuse(e.span().map(|s| s.start), e.message()))?;
        if let Err((at, why)) = profile.geometry.check_rules() {
            return Err(refuse(Some(at), &why));
        }
        if profile.flash.is_some() && profile.arm.is_some() {
            return Err(refuse(text.find("[arm]"), "a drive has [flash] or an [arm], not both"));
        }
        if let Some(flash) = &profile.flash
            && flash.planes_of_drive().is_none_or(|planes| planes > MAX_PLANES)
        {
            let why = format!("channels x dies x planes: {MAX_PLANES} are the most");
            return Err(refuse(text.find("[flash]"), &why));
        }
        let mut options = EmuOptions::default();
        profile.shape(&mut options);
        // A broken geometry rule has no line of its own: the error names the section's line.
        options.geometry().map_err(|e| refuse(text.find("[geometry]"), &e.to_string()))?;
        Ok(profile)
    }

    /// Copies the profile's geometry into `options`.
    pub fn shape(&self, options: &mut EmuOptions) {
        let shape = &self.geometry;
        let old = options.block_size;
        let size = |field: &Option<Spanned<Size>>| field.as_ref().map(|size| size.as_ref().0);
        options.block_size =
            size(&shape.block_size).and_then(|s| u32::try_from(s).ok()).unwrap_or(options.block_size);
        let block = options.block_size.max(1);
        let blocks = |given: Option<u64>, default: Blocks| {
            Blocks(given.unwrap_or(default.bytes(old).0) / u64::from(block))
        };
        options.zones = shape.zones.map_or(options.zones, NonZeroU32::get);
        options.conventional = shape.conventional.unwrap_or(options.conventional);
        options.zone_size = blocks(size(&shape.zone_size), options.zone_size);
        options.zone_capacity = match size(&shape.zone_capacity) {
            Some(given) => Blocks(given / u64::from(block)),
            None => options.zone_size,
        };
        options.max_append = blocks(size(&shape.max_append), options.max_append);
        options.max_open = shape.max_open.map_or(options.max_open, |limit| limit.0);
        options.max_active = match (shape.max_active, options.max_open, options.max_active) {
            (Some(limit), ..) => limit.0,
            (None, Some(open), Some(active)) => Some(open.max(active)),
            (None, ..) => None,
        };
        options.volatile_cache = shape.cache.map_or(options.volatile_cache, |cache| cache == Cache::Volatile);
    }
}

impl EmuOptions {
    /// Settings of an emulated drive with the geometry and the times of `profile`.
    pub fn of_profile(profile: Profile) -> EmuOptions {
        let mut options = EmuOptions::default();
        profile.shape(&mut options);
        options.profile = Some(Arc::new(profile));
        options
    }
}
