//! The output of commands: text for people, JSON for programs.

use std::io::{self, Write};

use anyhow::Result;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::Value;

/// Prints a JSON value and a newline.
pub fn json(value: &Value) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Prints a failure as one line of JSON. The exit code tells its kind.
pub fn failure(message: &str) {
    // The failure is printed on stderr too, so an error of writing to stdout is ignored.
    let _unread = line(serde_json::json!({ "error": message }).to_string());
}

/// Prints a line. Unlike `println!`, returns an error if the reader has closed stdout.
pub fn line(text: impl AsRef<str>) -> Result<()> {
    writeln!(io::stdout().lock(), "{}", text.as_ref())?;
    Ok(())
}

/// Prints a table without ruled lines, for pasting and grep. Columns named in `right` are aligned to the right.
pub fn table(header: &[&str], right: &[&str], rows: Vec<Vec<String>>) -> Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header.iter().map(|name| Cell::new(name.to_uppercase())));
    for (column, name) in table.column_iter_mut().zip(header) {
        column.set_padding((0, 2));
        if right.contains(name) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in rows {
        table.add_row(row);
    }
    for text in table.lines() {
        line(text.trim_end())?;
    }
    Ok(())
}

/// Prints pairs of a name and a value, aligned.
pub fn pairs(pairs: &[(&str, String)]) -> Result<()> {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in pairs {
        line(format!("{name:width$}  {value}"))?;
    }
    Ok(())
}
