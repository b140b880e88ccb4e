//! A figure's panels: pairs of axes.

/// A pair of axes.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// The panel shows the rows with this `figure`.
    pub figure: &'static str,
    /// The title above the panel.
    pub title: &'static str,
    /// The axis below, with its unit.
    pub x: &'static str,
    /// The axis at the left, with its unit.
    pub y: &'static str,
    /// How rows are drawn.
    pub shape: Shape,
}

impl Panel {
    /// A panel; the axes' names have their units.
    pub const fn new(
        figure: &'static str,
        title: &'static str,
        x: &'static str,
        y: &'static str,
        shape: Shape,
    ) -> Panel {
        Panel { figure, title, x, y, shape }
    }
}

/// How rows are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A line for each series, linear or logarithmic upwards.
    Lines {
        /// Logarithmic.
        log: bool,
    },
    /// Bars side by side for each series.
    Bars,
    /// One bar at each place, its parts the series.
    Stack,
    /// A line for each row: the deviation from the published number in percent.
    Deviation {
        /// Half the width of the band of good deviations.
        allowed: f64,
    },
}

impl Shape {
    /// Lines over a linear axis.
    pub const LINES: Shape = Shape::Lines { log: false };
    /// Lines over a logarithmic axis.
    pub const LOG_LINES: Shape = Shape::Lines { log: true };
}

/// A rectangle of the picture.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// In pixels, from the left.
    pub left: f64,
    /// From the top.
    pub top: f64,
    /// The width.
    pub width: f64,
    /// The height.
    pub height: f64,
}
