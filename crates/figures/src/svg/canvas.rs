//! A picture of SVG elements.

use std::fmt::Write;

/// The colours of series, distinct for red-green colour-blind readers and visible on white and on black.
const COLOURS: [&str; 8] =
    ["#e07b21", "#3b7dd8", "#3fa45b", "#8e5bd0", "#c2b022", "#d0457a", "#1b9aaa", "#8a7560"];

/// The number of the colour that a series is drawn in.
pub fn colour(series: usize) -> usize {
    series % COLOURS.len()
}

/// The approximate width of a text in pixels.
pub fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.6
}

/// An SVG picture.
pub struct Canvas(String);

impl Canvas {
    /// An empty picture with a title, a width and a height.
    pub fn new(title: &str, width: f64, height: f64) -> Canvas {
        let mut out = String::new();
        let _ = writeln!(
            out,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12" role="img" aria-label="{}">"##,
            escape(title)
        );
        out.push_str(
            "<style>\n.ground{fill:#fff} text{fill:#1c2733} .title{font-size:15px;font-weight:600} \
             .head{font-weight:600} .quiet,text.quiet{fill:#5b6875} .grid{stroke:#dfe4e9} \
             .axis{stroke:#5b6875} .band{fill:#3fa45b22} .quiet-line{stroke:#5b6875} .ring{fill:#fff}\n\
             @media (prefers-color-scheme:dark){.ground{fill:#0d1117} text{fill:#e6edf3} \
             .quiet,text.quiet{fill:#9aa7b4} .grid{stroke:#2a323c} .axis{stroke:#9aa7b4} \
             .quiet-line{stroke:#9aa7b4} .ring{fill:#0d1117}}\n\
             .line{fill:none;stroke-width:2} .dashed{stroke-dasharray:5 4;stroke-width:1.5} \
             .ring{stroke-width:1.5}\n",
        );
        for (index, colour) in COLOURS.iter().enumerate() {
            let _ = writeln!(out, ".s{index}{{fill:{colour}}} .l{index}{{stroke:{colour}}}");
        }
        out.push_str("</style>\n");
        let _ = writeln!(out, r#"<rect class="ground" width="{width:.0}" height="{height:.0}" rx="6"/>"#);
        Canvas(out)
    }

    /// Adds a text; `anchor` is `start`, `middle` or `end`.
    pub fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let _ = writeln!(
            self.0,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        );
    }

    /// Adds a straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let _ = writeln!(
            self.0,
            r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            from.0, from.1, to.0, to.1
        );
    }

    /// Adds a line through points.
    pub fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.0, r#"<polyline class="line {class}" points="{}"/>"#, points.join(" "));
    }

    /// Adds a rectangle.
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        self.tipped_rect(x, y, width, height, class, None);
    }

    /// Adds a rectangle with a tooltip.
    pub fn tipped_rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str, tip: Option<&str>) {
        let element =
            format!(r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}""#);
        self.close(&element, "rect", tip);
    }

    /// Adds a solid circle.
    pub fn dot(&mut self, x: f64, y: f64, class: &str, tip: Option<&str>) {
        self.close(&format!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3.5""#), "circle", tip);
    }

    /// Adds a hollow circle; the class sets its stroke.
    pub fn ring(&mut self, x: f64, y: f64, class: &str, tip: Option<&str>) {
        self.close(&format!(r#"<circle class="ring {class}" cx="{x:.1}" cy="{y:.1}" r="4""#), "circle", tip);
    }

    fn close(&mut self, element: &str, name: &str, tip: Option<&str>) {
        let _ = match tip {
            Some(tip) => writeln!(self.0, "{element}><title>{}</title></{name}>", escape(tip)),
            None => writeln!(self.0, "{element}/>"),
        };
    }

    /// The finished picture as SVG text.
    pub fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
