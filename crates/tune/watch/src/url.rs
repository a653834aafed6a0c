//! Where a message goes.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longer ones are a mistake.
const LENGTH_MAX: usize = 2048;

/// An `http://` URL that a webhook is sent to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Url {
    text: String,
    /// The host as it is resolved: without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// Where the path begins in `text`; at its end if there is none.
    path_at: usize,
}

/// Why a text is no such URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// TLS.
    #[error("webhooks cannot speak https: there is no TLS in the watcher")]
    Https,
    /// Another scheme, or none.
    #[error("a webhook's URL begins with http://")]
    Scheme,
    /// A name or password.
    #[error("a webhook's URL holds no user and no password")]
    User,
    /// The host.
    #[error("a webhook's URL names a host: http://127.0.0.1:9000/path")]
    Host,
    /// The port.
    #[error("the port of a webhook's URL is a number from 1 to 65535")]
    Port,
    /// Characters.
    #[error("a webhook's URL has printable ASCII only, no space, no `#`; others are written %20")]
    Characters,
    /// Length.
    #[error("a webhook's URL has at most {LENGTH_MAX} characters")]
    Length,
}

impl UrlError {
    /// What to do instead, if something is known.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            UrlError::Https => Some(
                "send to a relay on this machine over http://, or `run \"curl …\"` with the finding in its environment",
            ),
            _ => None,
        }
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Url, UrlError> {
        const SCHEME: &str = "http://";
        let begins = |with: &str| {
            text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with))
        };
        if begins("https://") {
            return Err(UrlError::Https);
        }
        if !begins(SCHEME) {
            return Err(UrlError::Scheme);
        }
        if text.len() > LENGTH_MAX {
            return Err(UrlError::Length);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(UrlError::Characters);
        }
        let path_at = text[SCHEME.len()..].find(['/', '?']).map(|at| at + SCHEME.len());
        let path_at = path_at.unwrap_or(text.len());
        let authority = &text[SCHEME.len()..path_at];
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let (host, behind) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']').ok_or(UrlError::Host)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Host)?;
                (host, behind)
            }
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return Err(UrlError::Host);
        }
        let port = match behind.strip_prefix(':') {
            None if behind.is_empty() => 80,
            None => return Err(UrlError::Host),
            Some(digits) => match digits.parse() {
                Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => port,
                _ => return Err(UrlError::Port),
            },
        };
        Ok(Url { host: host.to_owned(), port, path_at, text: text.to_owned() })
    }
}

impl Url {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whom to connect to.
    pub(crate) fn peer(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// What a request's first line asks for.
    pub(crate) fn target(&self) -> String {
        match &self.text[self.path_at..] {
            path if path.starts_with('/') => path.to_owned(),
            query => format!("/{query}"),
        }
    }

    /// What the header `Host` says: host and port, as they were written.
    pub(crate) fn authority(&self) -> &str {
        &self.text["http://".len()..self.path_at]
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Url {
    type Error = UrlError;

    fn try_from(text: String) -> Result<Url, UrlError> {
        text.parse()
    }
}

impl From<Url> for String {
    fn from(url: Url) -> String {
        url.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, peer, target, authority) in [
            ("http://a.example", ("a.example", 80), "/", "a.example"),
            ("HTTP://a:81/b/c?d=e", ("a", 81), "/b/c?d=e", "a:81"),
            ("http://[::1]:9000?x", ("::1", 9000), "/?x", "[::1]:9000"),
            ("http://127.0.0.1/%20", ("127.0.0.1", 80), "/%20", "127.0.0.1"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.peer(), url.authority()), (peer, authority), "{text}");
            assert_eq!(url.target(), target, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_said() {
        for (text, why) in [
            ("https://a/", UrlError::Https),
            ("HTTPS://a/", UrlError::Https),
            ("ftp://a/", UrlError::Scheme),
            ("", UrlError::Scheme),
            ("http:/é", UrlError::Scheme),
            ("http://", UrlError::Host),
            ("http:///x", UrlError::Host),
            ("http://[::1", UrlError::Host),
            ("http://[a]/", UrlError::Host),
            ("http://[::1]x/", UrlError::Host),
            ("http://a:0/", UrlError::Port),
            ("http://a:+1/", UrlError::Port),
            ("http://a:65536/", UrlError::Port),
            ("http://a:/", UrlError::Port),
            ("http://me:it@a/", UrlError::User),
            ("http://a/ b", UrlError::Characters),
            ("http://a/\r\nX: y", UrlError::Characters),
            ("http://a/é", UrlError::Characters),
            ("http://a/#b", UrlError::Characters),
        ] {
            assert_eq!(text.parse::<Url>(), Err(why), "{text}");
        }
        let long = format!("http://a/{}", "x".repeat(LENGTH_MAX));
        assert_eq!(long.parse::<Url>(), Err(UrlError::Length));
    }
}
