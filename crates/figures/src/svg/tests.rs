use super::*;
use crate::Unit;

fn panel(shape: Shape) -> Panel {
    Panel { figure: "fig", title: "a < b", x: "buffer, KiB", y: "kIOPS", shape }
}

fn rows() -> Vec<Row> {
    let row = |series: &str, x: u32, ours| Row::new("fig", series, x, Unit::Kiops, ours);
    vec![
        row("write & log", 16, 7.0).paper(6.8),
        row("append", 4, 30.0).paper(26.2),
        row("append", 16, 60.0),
        Row::new("another", "not drawn", 4, Unit::Kiops, 1e9),
    ]
}

/// Checks that the tags of an SVG text are closed in order; gives the names of the elements.
fn elements(svg: &str) -> Vec<&str> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('>') && !tag.contains(['{', '}']), "{tag}: {text}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        all.push(name);
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

const SHAPES: [Shape; 5] = [
    Shape::Lines { log: false },
    Shape::Lines { log: true },
    Shape::Bars,
    Shape::Stack,
    Shape::Deviation { allowed: 10.0 },
];

#[test]
fn every_shape_is_well_formed_and_names_every_series() {
    for shape in SHAPES {
        let svg = draw("Title <1>", &[panel(shape)], &rows());
        assert!(!elements(&svg).is_empty());
        for word in ["Title &lt;1&gt;", "write &amp; log", "append", "buffer, KiB"] {
            assert!(svg.contains(word), "{shape:?}: {word}");
        }
        assert!(!svg.contains("not drawn") && !svg.contains("NaN") && !svg.contains("inf"), "{shape:?}");
        assert!(matches!(shape, Shape::Deviation { .. }) || svg.contains("kIOPS"));
    }
}

#[test]
fn nothing_measured_is_drawn_as_empty_axes() {
    for shape in SHAPES {
        let svg = draw("t", &[panel(shape), panel(shape), panel(shape)], &[]);
        elements(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{shape:?}: {svg}");
    }
}

#[test]
fn each_number_has_its_mark_hollow_where_it_was_published() {
    let svg = draw("t", &[panel(Shape::Lines { log: false })], &rows());
    // One ring and one dot are the legend's.
    assert_eq!(svg.matches("<circle class=\"ring").count(), 2 + 1);
    assert_eq!(svg.matches("<circle class=\"s").count(), 3);
    assert!(svg.contains("append, 4: 30 kIOPS, published 26.2 kIOPS"), "{svg}");
    let svg = draw("t", &[panel(Shape::Bars)], &rows());
    assert_eq!(svg.matches("<rect class=\"ring").count(), 2);
}

#[test]
fn everything_lies_within_the_picture() {
    for shape in SHAPES {
        let svg = draw("t", &[panel(shape), panel(shape)], &rows());
        let height: f64 =
            svg.split("height=\"").nth(1).and_then(|s| s.split('"').next()).unwrap().parse().unwrap();
        for (key, most) in [(" cx=\"", WIDTH), (" x=\"", WIDTH), (" cy=\"", height), (" y=\"", height)] {
            for part in svg.split(key).skip(1) {
                let value: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=most).contains(&value), "{shape:?}: {key}{value}");
            }
        }
    }
}

#[test]
fn published_numbers_are_joined_only_where_they_are_neighbours() {
    let row = |x: u32, paper| Row::new("fig", "append", x, Unit::Kiops, 1.0).paper(paper);
    let dashed = |rows: &[Row]| {
        let svg = draw("t", &[panel(Shape::Lines { log: false })], rows);
        let lines = svg.lines().filter(|line| line.contains("polyline") && line.contains("dashed"));
        lines.map(|line| line.matches(',').count()).max()
    };
    assert_eq!(dashed(&[row(4, Some(1.0)), row(8, None), row(16, Some(2.0))]), Some(1));
    assert_eq!(dashed(&[row(4, Some(1.0)), row(8, Some(3.0)), row(16, None)]), Some(2));
}
