//! Asks a web server for one file over https, from a byte on.
//!
//! The address comes from an organiser, and a redirect from an unknown server. Each must be https, and its name must
//! resolve to an address of the internet. That is checked where the name is resolved, so the connection goes to the
//! checked address itself. A proxy of the environment is not used, since it would resolve names itself.
//!
//! Without these rules an organiser, or whoever has bought the name of a server, could make every
//! node of a run ask machines in its own network.

use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::{Response, Uri, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body, BodyReader};

use super::error::{WebAddress, WebError, Why};
use super::public::is_public;

/// What a client may do and which certificates it believes.
#[derive(Clone)]
pub(super) struct WebRules {
    /// The addresses that it may connect to.
    pub(super) allows: fn(IpAddr) -> bool,
    /// The authorities whose certificates it believes.
    pub(super) roots: RootCerts,
    /// How long it waits for a name, a connection, or a byte.
    pub(super) patience: Duration,
    /// The pause between two tries.
    pub(super) pause: Duration,
}

/// Asks servers for files, within the rules.
pub(super) struct Client {
    /// The http client, with the rules built in.
    agent: Agent,
    /// For errors: how long it waited.
    patience: Duration,
}

/// The answer of a server, while it arrives.
pub(super) struct Download {
    /// Where it comes from, after all redirects.
    pub(super) source: WebAddress,
    /// Index of its first byte in the file.
    pub(super) offset: u64,
    /// The bytes that have not been read yet.
    body: BodyReader<'static>,
    /// How long a read waits for a byte.
    patience: Duration,
}

impl WebRules {
    /// The rules for the internet: public addresses, and the certificates that browsers believe.
    pub(super) fn public() -> Self {
        let (patience, pause) = (Duration::from_secs(30), super::PAUSE);
        Self { allows: is_public, roots: RootCerts::WebPki, patience, pause }
    }
}

impl Client {
    /// A client that follows no redirect by itself, uses no proxy, and believes only the given
    /// authorities.
    ///
    /// Statuses are no errors of the client: [`Client::ask`] judges them itself. Compressed answers
    /// are not asked for, because offsets and lengths are those of the file.
    pub(super) fn new(rules: &WebRules) -> Self {
        let patience = Some(rules.patience);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(rules.roots.clone())
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .https_only(true)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .accept_encoding("identity")
            .user_agent("intellect-node")
            .timeout_resolve(patience)
            .timeout_connect(patience)
            .timeout_send_request(patience)
            .timeout_recv_response(patience)
            .timeout_per_read(patience)
            .build();
        let resolver = Guarded { allows: rules.allows, inner: DefaultResolver::default() };
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        Self { agent, patience: rules.patience }
    }

    /// Asks for the file of so many bytes at `url`, from byte `offset` on; from the first byte on if the server does not
    /// support that.
    ///
    /// # Errors
    /// There is no such file, or it has another length.
    pub(super) fn ask(&self, url: &str, offset: u64, bytes: u64) -> Result<Download, WebError> {
        let (source, response) = self.follow(url, offset)?;
        match response.status().as_u16() {
            206 if offset > 0 && is_rest(&response, offset, bytes) => {
                self.answer(source, response, offset, bytes)
            }
            206 | 416 if offset > 0 => self.ask(url, 0, bytes),
            200 => self.answer(source, response, 0, bytes),
            other => Err(Why::Status(other).at(&source)),
        }
    }

    /// Takes the body of an answer. A length that does not fit is refused before any byte is read.
    /// An answer without a length is read, and judged by what comes.
    fn answer(
        &self,
        mut source: WebAddress,
        response: Response<Body>,
        offset: u64,
        bytes: u64,
    ) -> Result<Download, WebError> {
        let body = response.into_body();
        source.is_page = body.mime_type() == Some("text/html");
        if let Some(length) = body.content_length()
            && offset.checked_add(length) != Some(bytes)
        {
            let has = offset.saturating_add(length);
            return Err(Why::Length { has, wanted: bytes }.at(&source));
        }
        let (body, patience) = (body.into_reader(), self.patience);
        Ok(Download { source, offset, body, patience })
    }

    /// Follows redirects, but fewer than a browser, and only to allowed addresses.
    /// The range is asked for at each hop, since the last one sends the file.
    fn follow(&self, url: &str, offset: u64) -> Result<(WebAddress, Response<Body>), WebError> {
        let mut source = WebAddress { url: url.to_owned(), is_page: false };
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.agent.get(&source.url);
            if offset > 0 {
                request = request.header(header::RANGE, format!("bytes={offset}-"));
            }
            let response = request.call().map_err(|error| why(error, self.patience).at(&source))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((source, response));
            }
            let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
            let next = joined(&source.url, to.ok_or_else(|| Why::Nowhere.at(&source))?);
            if !next.starts_with("https://") {
                return Err(Why::NotHttps(next).at(&source));
            }
            source.url = next;
        }
        let source = WebAddress { url: url.to_owned(), is_page: false };
        Err(Why::Redirects(REDIRECTS_MAX).at(&source))
    }
}

impl Download {
    /// Reads some of the next bytes; 0 at the end.
    ///
    /// # Errors
    /// The connection fails, or nothing comes for too long.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Why> {
        self.body.read(buffer).map_err(|error| why(error.into(), self.patience))
    }

    /// How long a piece may take: 300 s, or 3.5 kB/s, where a read may take 30 s. A server that sends a byte in time for
    /// each read would else hold a start for good.
    pub(super) fn piece_patience(&self) -> Duration {
        10 * self.patience
    }
}

/// The cause in the words of this module. Errors of our own resolver and of TLS are found inside
/// those of the client.
fn why(error: ureq::Error, patience: Duration) -> Why {
    use ureq::Error;
    match error {
        Error::HostNotFound => Why::NoName,
        Error::Timeout(_) => Why::Silent(patience),
        Error::RequireHttpsOnly(to) => Why::NotHttps(to),
        Error::Rustls(error) => Why::Tls(error.to_string()),
        Error::Tls(error) => Why::Tls(error.to_owned()),
        Error::Other(error) => match error.downcast::<Private>() {
            Ok(private) => Why::Private(private.0),
            Err(error) => Why::Broken(error.to_string()),
        },
        Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => Why::Tls(rustls::Error::to_string(error)),
            None => Why::Broken(error.to_string()),
        },
        other => Why::Broken(other.to_string()),
    }
}

/// Whether the response is the rest of the file from `offset` on.
/// If it is not, the file is asked for from its first byte on.
fn is_rest(response: &Response<Body>, offset: u64, bytes: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range == Some(&format!("bytes {offset}-{}/{bytes}", bytes.saturating_sub(1)))
}

/// The address that a redirect from `base` means (RFC 3986, §5.2, without the dots, which servers understand).
fn joined(base: &str, to: &str) -> String {
    let to = to.split('#').next().unwrap_or_default();
    let scheme = to.split(['/', '?']).next().unwrap_or_default();
    if let Some((scheme, _)) = scheme.split_once(':') {
        return format!("{}{}", scheme.to_ascii_lowercase(), &to[scheme.len()..]);
    }
    if to.starts_with("//") {
        return format!("https:{to}");
    }
    let base = base.split('?').next().unwrap_or_default();
    let host = base.match_indices('/').nth(2).map_or(base.len(), |(at, _)| at);
    let folder = base.rfind('/').filter(|at| *at >= host).map_or(base.len(), |at| at);
    match to.chars().next() {
        None | Some('?') => format!("{base}{to}"),
        Some('/') => format!("{}{to}", &base[..host]),
        Some(_) => format!("{}/{to}", &base[..folder]),
    }
}

/// Resolves names, and returns only addresses that are allowed.
///
/// A name with a public and a private address is asked at the public one. A name with private ones
/// alone is refused with the first of them, which the error shows.
#[derive(Debug)]
struct Guarded {
    /// Which addresses may be connected to.
    allows: fn(IpAddr) -> bool,
    /// The resolver that the system has.
    inner: DefaultResolver,
}

/// No address of a name is allowed; this is the first of them.
#[derive(Debug, thiserror::Error)]
#[error("{0} is no address of the internet")]
struct Private(IpAddr);

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let all = match self.inner.resolve(uri, config, timeout) {
            // The name server does not know the name, or there is no name server.
            Err(ureq::Error::Io(_)) => return Err(ureq::Error::HostNotFound),
            all => all?,
        };
        let mut allowed = self.empty();
        for at in all.iter().filter(|at| (self.allows)(at.ip())) {
            allowed.push(*at);
        }
        match all.first() {
            Some(first) if allowed.is_empty() => {
                Err(ureq::Error::Other(Box::new(Private(first.ip()))))
            }
            _ => Ok(allowed),
        }
    }
}

/// Most redirects on the way to a file.
const REDIRECTS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_where_a_browser_would_go() {
        for (base, to, place) in [
            ("https://a/b/c?d", "https://e/f", "https://e/f"),
            ("https://a/b/c", "HTTP://e/f", "http://e/f"),
            ("https://a/b/c", "file:///etc/passwd", "file:///etc/passwd"),
            ("https://a/b/c", "//e/f", "https://e/f"),
            ("https://a:8443/b/c?d", "/e", "https://a:8443/e"),
            ("https://a/b/c?d/e", "f", "https://a/b/f"),
            ("https://a", "f", "https://a/f"),
            ("https://a/b", "?c=/d:e", "https://a/b?c=/d:e"),
            ("https://a/b", "c#d", "https://a/c"),
        ] {
            assert_eq!(joined(base, to), place, "{base} {to}");
        }
    }
}
