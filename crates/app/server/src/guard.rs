//! Access control: which requests are answered.
//!
//! The server listens on the loopback interface, which every user of the machine and every page
//! in the user's browser can reach. So:
//!
//! - Everything of the trace needs a **token**, 128 random bits that are in the URL that was
//!   printed, behind the `#`, which browsers never send. The page keeps it for its
//!   own origin and sends it in a header. There is no cookie: cookies go to all ports of a host,
//!   so another server on this machine would be given it.
//! - A request is answered only if its **`Host`** is this machine by the name that was printed. A
//!   hostile name that resolves to 127.0.0.1 (DNS rebinding) is not.
//! - If a browser says where a request comes from (**`Origin`**, `Sec-Fetch-Site`), it must be the page
//!   itself. A page elsewhere could not read an answer, but is not even heard. Only a link to the page
//!   may stand elsewhere.
//! - The page may load scripts and styles from here alone, runs no inline script, and may not be
//!   put into a frame (**Content-Security-Policy**).

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::error::{Error, Result};

/// The header that carries the token.
pub const TOKEN_HEADER: &str = "x-fettle-token";

const TOKEN_BYTES: usize = 16;

/// Headers of every answer.
pub const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Decides which requests are answered.
#[derive(Clone, Debug)]
pub struct Guard {
    token: String,
    hosts: [String; 2],
}

impl Guard {
    /// A guard with a new token, for a server on this port.
    pub fn new(port: u16) -> Result<Guard> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(Error::Random)?;
        let token = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        Ok(Guard { token, hosts })
    }

    /// The URL that grants access.
    pub fn url(&self) -> String {
        format!("http://{}/#token={}", self.hosts[0], self.token)
    }

    /// Whether this request may get the page itself.
    pub fn admit(&self, headers: &HeaderMap) -> std::result::Result<(), Refusal> {
        let value = |name: HeaderName| headers.get(name).map(HeaderValue::as_bytes);
        let host = value(header::HOST).ok_or(Refusal::Host)?;
        if headers.get_all(header::HOST).iter().count() != 1
            || !self.hosts.iter().any(|known| known.as_bytes() == host)
        {
            return Err(Refusal::Host);
        }
        if let Some(origin) = value(header::ORIGIN) {
            let own = [b"http://", host].concat();
            if origin != own {
                return Err(Refusal::Origin);
            }
        }
        let fetch = |what| value(HeaderName::from_static(what));
        match fetch("sec-fetch-site") {
            None | Some(b"same-origin" | b"none") => Ok(()),
            // A link that was followed: the page opens in a tab of its own, and the page with the
            // link sees nothing of it.
            Some(_)
                if fetch("sec-fetch-mode") == Some(b"navigate")
                    && fetch("sec-fetch-dest") == Some(b"document") =>
            {
                Ok(())
            }
            Some(_) => Err(Refusal::Origin),
        }
    }

    /// Whether this request may get the trace.
    pub fn admit_to_trace(&self, headers: &HeaderMap) -> std::result::Result<(), Refusal> {
        self.admit(headers)?;
        let given = headers.get(TOKEN_HEADER).ok_or(Refusal::Token)?.as_bytes();
        // The time that this takes depends on the length alone.
        let differences =
            given.iter().zip(self.token.as_bytes()).fold(0, |sum, (a, b)| sum | a ^ b);
        if given.len() == self.token.len() && differences == 0 {
            Ok(())
        } else {
            Err(Refusal::Token)
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Asked for by a name that is not this server's.
    Host,
    /// Asked by another page.
    Origin,
    /// No token, or a wrong one.
    Token,
}

impl Refusal {
    /// Status and sentence.
    pub fn reported(self) -> (StatusCode, &'static str) {
        match self {
            Refusal::Host => (StatusCode::MISDIRECTED_REQUEST, "no server of this name is here"),
            Refusal::Origin => (StatusCode::FORBIDDEN, "another page may not ask here"),
            Refusal::Token => (
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: open the whole URL that `fettle ui` printed",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    #[test]
    fn hosts_and_origins() {
        let guard = Guard::new(4000).unwrap();
        let cases: [(&[(&str, &str)], _); 11] = [
            (&[("host", "127.0.0.1:4000")], Ok(())),
            (&[("host", "localhost:4000"), ("origin", "http://localhost:4000")], Ok(())),
            (&[("host", "127.0.0.1:4000"), ("sec-fetch-site", "same-origin")], Ok(())),
            (&[], Err(Refusal::Host)),
            (&[("host", "127.0.0.1")], Err(Refusal::Host)),
            (&[("host", "127.0.0.1:4001")], Err(Refusal::Host)),
            (&[("host", "evil.example:4000")], Err(Refusal::Host)),
            (
                &[("host", "127.0.0.1:4000"), ("origin", "http://evil.example")],
                Err(Refusal::Origin),
            ),
            (&[("host", "127.0.0.1:4000"), ("origin", "null")], Err(Refusal::Origin)),
            // Another server of this machine, and the same server by its other name.
            (
                &[("host", "127.0.0.1:4000"), ("origin", "http://localhost:4000")],
                Err(Refusal::Origin),
            ),
            (&[("host", "127.0.0.1:4000"), ("sec-fetch-site", "same-site")], Err(Refusal::Origin)),
        ];
        for (list, wanted) in cases {
            let list: Vec<_> = list.iter().map(|&(n, v)| (n, v)).collect();
            let map: HeaderMap = list
                .iter()
                .map(|(name, value)| {
                    (
                        HeaderName::from_bytes(name.as_bytes()).unwrap(),
                        HeaderValue::from_str(value).unwrap(),
                    )
                })
                .collect();
            assert_eq!(guard.admit(&map), wanted, "{list:?}");
        }
    }

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let (one, two) = (Guard::new(1).unwrap(), Guard::new(1).unwrap());
        assert_eq!(one.token.len(), 2 * TOKEN_BYTES);
        assert_ne!(one.token, two.token);
        let ask = |token: &str| {
            let headers = headers(&[("host", "127.0.0.1:1"), (TOKEN_HEADER, token)]);
            one.admit_to_trace(&headers)
        };
        assert_eq!(ask(&one.token), Ok(()));
        for wrong in [two.token.as_str(), "", &one.token[1..], &format!("{}0", one.token)] {
            assert_eq!(ask(wrong), Err(Refusal::Token));
        }
        let none = headers(&[("host", "127.0.0.1:1")]);
        assert_eq!(one.admit_to_trace(&none), Err(Refusal::Token));
        assert!(one.url().ends_with(&one.token) && one.url().contains("/#"));
    }
}
