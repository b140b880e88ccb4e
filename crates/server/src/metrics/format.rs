//! The two text formats of metrics.

/// A text format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// The Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The metrics format that an `Accept` header prefers; OpenMetrics only if the header names it.
    pub fn of_accept(accept: &str) -> Format {
        let quality = |media: &str| {
            let mut best = 0.0_f64;
            for range in accept.split(',') {
                let mut parts = range.split(';').map(str::trim);
                if parts.next().is_some_and(|name| name.eq_ignore_ascii_case(media)) {
                    let q = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
                    best = best.max(q.unwrap_or(1.0));
                }
            }
            best
        };
        let (open, text) = (quality("application/openmetrics-text"), quality("text/plain"));
        if open > 0.0 && open >= text { Format::OpenMetrics } else { Format::Text }
    }

    /// The `Content-Type` of metrics in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts metrics from OpenMetrics to this format.
    pub fn convert(self, text: String) -> String {
        match self {
            Format::OpenMetrics => text,
            Format::Text => to_text(&text),
        }
    }
}

/// Converts from OpenMetrics to the Prometheus text format, which names counters and infos with the suffixes of their
/// samples, and has no infos and no end mark.
fn to_text(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut help = None;
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), about) => help = Some(about.unwrap_or_default()),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    other => ("", other),
                };
                if let Some(help) = help.take() {
                    text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
                }
                text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            (Some("#"), ..) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accepted_format_of_the_higher_quality_is_chosen() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.2", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            ("*/*", Format::Text),
            ("text/html", Format::Text),
            ("", Format::Text),
        ] {
            assert_eq!(Format::of_accept(accept), format, "{accept}");
        }
    }

    #[test]
    fn the_text_format_names_counters_and_infos_as_their_samples() {
        let open = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total 3\n# HELP c Now.\n# TYPE c gauge\nc 1\n\
                    # HELP i The i.\n# TYPE i info\ni_info{v=\"1\"} 1\n# EOF\n";
        assert_eq!(
            Format::Text.convert(open.into()),
            "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total 3\n# HELP c Now.\n# TYPE c gauge\nc 1\n\
             # HELP i_info The i.\n# TYPE i_info gauge\ni_info{v=\"1\"} 1\n"
        );
        assert_eq!(Format::OpenMetrics.convert(open.into()), open);
    }
}
