//! Prints a libFuzzer dictionary for a target, from its golden files: each aligned word of 2, 4 or 8 bytes that is not all zeros.
//! For a target without golden files: the words of its corpus, or the aligned ones where its inputs have no letters.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

/// Most words of a dictionary: more slow libFuzzer down.
const MAX_WORDS: usize = 400;

fn main() -> Result<()> {
    let name = std::env::args().nth(1).context("usage: dictionary TARGET")?;
    let target = fuzz::find(&name).with_context(|| format!("{name} is no target"))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut words = BTreeSet::new();
    for directory in target.golden {
        add_aligned(&contents(&root.join("..").join(directory))?, &mut words);
    }
    if target.golden.is_empty() {
        let inputs = contents(&root.join("corpus").join(target.name))?;
        for bytes in &inputs {
            let parts = bytes.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-' && *byte != b'_');
            words.extend(parts.filter(|word| (2..=32).contains(&word.len())).map(<[u8]>::to_vec));
        }
        // libFuzzer takes no empty dictionary.
        if words.is_empty() {
            add_aligned(&inputs, &mut words);
        }
    }
    words.retain(|word| word.iter().any(|byte| *byte != 0));
    for word in words.iter().take(MAX_WORDS) {
        let shown: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        println!("\"{shown}\"");
    }
    Ok(())
}

fn add_aligned(files: &[Vec<u8>], words: &mut BTreeSet<Vec<u8>>) {
    for bytes in files {
        for width in [8, 4, 2] {
            words.extend(bytes.chunks_exact(width).map(<[u8]>::to_vec));
        }
    }
}

fn contents(directory: &Path) -> Result<Vec<Vec<u8>>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).with_context(|| format!("reading {}", path.display())))
        .collect()
}
