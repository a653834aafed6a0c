//! A page that needs nothing else: style, drawing and script in one file.

use super::escaped;

/// An HTML page around an SVG drawing, or other content that is HTML already. Title and what stands above
/// are text.
pub fn html(title: &str, above: &str, content: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body{{margin:16px;font:14px system-ui,sans-serif;background:#fff;color:#222}}\
         h1{{font-size:18px;margin:0 0 4px}}p{{margin:0 0 12px;color:#555}}\
         svg{{width:100%;height:auto}}</style>\n<h1>{title}</h1>\n<p>{above}</p>\n{content}</html>\n",
        title = escaped(title),
        above = escaped(above),
    )
}
