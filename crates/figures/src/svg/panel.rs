//! A figure's panels: pairs of axes.

/// A figure's panel: a pair of axes and the rows drawn between them.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// The name by which rows select the panel: their `figure`.
    pub figure: &'static str,
    /// The title above the panel.
    pub title: &'static str,
    /// The title of the horizontal axis, with its unit.
    pub x: &'static str,
    /// The title of the vertical axis, with its unit.
    pub y: &'static str,
    /// How the panel draws its rows.
    pub shape: Shape,
}

impl Panel {
    /// Makes a panel; the axes' titles include their units.
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

/// How a panel draws its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A line for each series; the vertical axis is linear or logarithmic.
    Lines {
        /// Whether the vertical axis is logarithmic.
        log: bool,
    },
    /// Bars for each series, side by side.
    Bars,
    /// One bar at each place of the horizontal axis, with the series as its parts.
    Stack,
    /// A line for each row: the deviation from the published number in percent.
    Deviation {
        /// Half the width of the band of allowed deviations.
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
    /// The left edge in pixels from the picture's left.
    pub left: f64,
    /// The upper edge in pixels from the picture's top.
    pub top: f64,
    /// The width in pixels.
    pub width: f64,
    /// The height in pixels.
    pub height: f64,
}
