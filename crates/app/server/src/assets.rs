//! The page's files, inside the binary. A request picks one of this list by its name and can name
//! nothing else.

use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

/// A file of the page: its path, its type and its content.
type Asset = (&'static str, &'static str, &'static [u8]);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The file `ui/$path` as an asset.
macro_rules! asset {
    ($path:literal, $kind:expr) => {
        (concat!("/", $path), $kind, include_bytes!(concat!("../../../../ui/", $path)))
    };
}

const ASSETS: &[Asset] = &[
    asset!("index.html", HTML),
    asset!("style.css", CSS),
    asset!("icon.svg", "image/svg+xml"),
    asset!("main.js", SCRIPT),
    asset!("api.js", SCRIPT),
    asset!("colours.js", SCRIPT),
    asset!("communication.js", SCRIPT),
    asset!("contention.js", SCRIPT),
    asset!("critical.js", SCRIPT),
    asset!("details.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("durations.js", SCRIPT),
    asset!("figures.js", SCRIPT),
    asset!("flame.js", SCRIPT),
    asset!("format.js", SCRIPT),
    asset!("functions.js", SCRIPT),
    asset!("graph.js", SCRIPT),
    asset!("histogram.js", SCRIPT),
    asset!("keys.js", SCRIPT),
    asset!("lanes.js", SCRIPT),
    asset!("layout.js", SCRIPT),
    asset!("layouts.js", SCRIPT),
    asset!("levels.js", SCRIPT),
    asset!("locks.js", SCRIPT),
    asset!("named.js", SCRIPT),
    asset!("notice.js", SCRIPT),
    asset!("overview.js", SCRIPT),
    asset!("raster.js", SCRIPT),
    asset!("requests.js", SCRIPT),
    asset!("search.js", SCRIPT),
    asset!("state.js", SCRIPT),
    asset!("timeline.js", SCRIPT),
    asset!("trace.js", SCRIPT),
    asset!("types.js", SCRIPT),
    asset!("waterfall.js", SCRIPT),
    asset!("vendor/uplot/uPlot.iife.min.js", SCRIPT),
    asset!("vendor/uplot/uPlot.min.css", CSS),
];

/// Answers with a file of the page.
pub(crate) async fn serve(method: Method, uri: Uri) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return (StatusCode::METHOD_NOT_ALLOWED, "only GET").into_response();
    }
    let path = if uri.path() == "/" { "/index.html" } else { uri.path() };
    match ASSETS.iter().find(|(name, ..)| *name == path) {
        Some((_, kind, content)) => ([(header::CONTENT_TYPE, *kind)], *content).into_response(),
        None => (StatusCode::NOT_FOUND, "there is nothing here").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::ASSETS;

    #[test]
    fn every_script_and_style_of_the_page_is_in_the_binary() {
        let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../ui");
        let (mut folders, mut found) = (vec![ui.clone()], 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = format!("/{}", path.strip_prefix(&ui).unwrap().display());
                let served = !name.ends_with(".d.ts")
                    && [".js", ".css", ".html", ".svg"].iter().any(|end| name.ends_with(end));
                if served {
                    found += 1;
                    assert!(ASSETS.iter().any(|(known, ..)| *known == name), "{name}");
                }
            }
        }
        assert_eq!(found, ASSETS.len());
    }
}
