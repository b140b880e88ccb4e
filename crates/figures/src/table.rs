//! A figure's rows as JSON and as CSV, with the machine and date of the measurement.

use serde::Serialize;

use super::row::written;
use super::{Better, Row};
use bench::Host;

/// The machine, date and settings that all rows of a file share.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The machine and the commit of the measurement.
    pub host: Host,
    /// The date of the measurement in UTC, as RFC 3339.
    pub date: String,
    /// Whether the measurements were shortened.
    pub quick: bool,
}

/// The rows of one figure, or of a whole run.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The machine and the date of the measurement.
    pub settings: &'a Settings,
    /// The rows of the table.
    pub rows: &'a [Row],
}

impl Table<'_> {
    /// The table as one JSON object with one row on each line: differences between two runs are then differences of lines.
    pub fn json(&self) -> String {
        let settings = json(self.settings);
        let head = settings.strip_suffix('}').expect("a struct is an object");
        let rows: Vec<String> = self.rows.iter().map(|row| format!("\n  {}", json(row))).collect();
        format!("{head},\"rows\":[{}\n]}}\n", rows.join(","))
    }

    /// The table as CSV: a comment line with the settings, the header, a line for each row.
    pub fn csv(&self) -> String {
        let settings = self.settings;
        let mut out = format!(
            "# {}, {} cores, commit {}, {}{}\nfigure,series,x,unit,better,paper,ours,note\n",
            settings.host.processor,
            settings.host.cores,
            settings.host.commit.as_deref().unwrap_or("unknown"),
            settings.date,
            if settings.quick { ", quick" } else { "" },
        );
        for row in self.rows {
            let better = match row.better {
                Better::Higher => "higher",
                Better::Lower => "lower",
            };
            let cells = [
                row.figure.to_owned(),
                quoted(&row.series),
                quoted(&row.x.to_string()),
                row.unit.name().to_owned(),
                better.to_owned(),
                row.paper.map(written).unwrap_or_default(),
                written(row.ours),
                quoted(&row.note),
            ];
            out.push_str(&cells.join(","));
            out.push('\n');
        }
        out
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("its keys are strings and its numbers are finite or null")
}

/// A CSV cell, quoted if its text needs quotes.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Unit, X};

    fn settings() -> Settings {
        let host =
            Host { processor: "P \"X\"".into(), cores: 2, optimised: true, commit: Some("c0ffee".into()) };
        Settings { host, date: "2026-11-22T00:00:00Z".into(), quick: true }
    }

    fn rows() -> [Row; 2] {
        [
            Row::new("fig2a", "append", 8, Unit::Kiops, 139.0 + 1.0 / 3.0).paper(149.4).note("virtual time"),
            Row::new("fig6a", "write, log", "Load", Unit::Seconds, 3.0).note("").note("a \"b\", c"),
        ]
    }

    #[test]
    fn a_csv_file_has_the_settings_a_header_and_a_line_for_each_row() {
        let csv = Table { settings: &settings(), rows: &rows() }.csv();
        let golden = "# P \"X\", 2 cores, commit c0ffee, 2026-11-22T00:00:00Z, quick\n\
                      figure,series,x,unit,better,paper,ours,note\n\
                      fig2a,append,8,kIOPS,higher,149.4,139.333,virtual time\n\
                      fig6a,\"write, log\",Load,s,lower,,3,\"a \"\"b\"\", c\"\n";
        assert_eq!(csv, golden);
    }

    #[test]
    fn a_json_file_is_one_object_with_the_settings_once() {
        let json = Table { settings: &settings(), rows: &rows() }.json();
        let golden = concat!(
            r#"{"host":{"processor":"P \"X\"","cores":2,"optimised":true,"commit":"c0ffee"},"#,
            r#""date":"2026-11-22T00:00:00Z","quick":true,"rows":["#,
            "\n",
            r#"  {"figure":"fig2a","series":"append","x":8,"unit":"kIOPS","better":"higher","paper":149.4,"ours":139.333,"note":"virtual time"},"#,
            "\n",
            r#"  {"figure":"fig6a","series":"write, log","x":"Load","unit":"s","better":"lower","paper":null,"ours":3,"note":"a \"b\", c"}"#,
            "\n]}\n",
        );
        assert_eq!(json, golden);
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
        assert_eq!(X::from(8).to_string(), "8");
        let none = Table { settings: &settings(), rows: &[] }.json();
        assert!(serde_json::from_str::<serde_json::Value>(&none).is_ok(), "{none}");
    }
}
