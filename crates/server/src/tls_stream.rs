//! TLS over a client's socket.

use std::io::{BufRead, Error as IoError, ErrorKind, IoSlice, Read, Result as IoResult, Write};

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConnection;

/// A client's socket after the handshake of TLS. No call but [`accept`](TlsStream::accept) waits.
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: ServerConnection,
}

impl TlsStream {
    /// Waits for the end of the handshake. Dropping the future closes the socket.
    ///
    /// # Errors
    /// The socket's error, or `InvalidData` with the error of TLS inside.
    pub async fn accept(acceptor: &TlsAcceptor, socket: TcpStream) -> IoResult<TlsStream> {
        let (socket, session) = acceptor.accept(socket).await?.into_inner();
        Ok(TlsStream { socket, session })
    }

    /// The socket, whose readiness is that of the stream.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads the bytes that have arrived into the free room of `buffer`; returns their number, which is 0 at the end of
    /// the client's bytes.
    ///
    /// # Errors
    /// `WouldBlock` if no bytes have arrived, `InvalidData` if they are no TLS, `UnexpectedEof` if the socket was closed
    /// before the end of TLS, the socket's error. Bytes that came before an error are returned first.
    pub fn try_read_buf(&mut self, buffer: &mut BytesMut) -> IoResult<usize> {
        let before = buffer.len();
        let filled = self.fill(buffer);
        let count = buffer.len() - before;
        match filled {
            Err(error) if count == 0 => Err(error),
            _ => Ok(count),
        }
    }

    /// Reads until the free room is used or the client's bytes end; `WouldBlock` if nothing more has arrived.
    fn fill(&mut self, buffer: &mut BytesMut) -> IoResult<()> {
        loop {
            match self.take_plaintext(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            self.session.read_tls(&mut ReadySocket(&self.socket))?;
            if let Err(error) = self.session.process_new_packets() {
                // The alert that tells the client why.
                let _closed = self.session.write_tls(&mut ReadySocket(&self.socket));
                return Err(IoError::new(ErrorKind::InvalidData, error));
            }
        }
    }

    /// Moves decrypted bytes into the free room; `WouldBlock` once there are none.
    fn take_plaintext(&mut self, buffer: &mut BytesMut) -> IoResult<()> {
        let mut reader = self.session.reader();
        loop {
            let room = buffer.capacity() - buffer.len();
            let chunk = reader.fill_buf()?;
            let count = room.min(chunk.len());
            if count == 0 {
                return Ok(());
            }
            buffer.extend_from_slice(chunk.get(..count).unwrap_or_default());
            reader.consume(count);
        }
    }

    /// Encrypts the first of `rest`'s bytes, removes them from `rest`, and sends what the socket takes; returns whether the
    /// socket took any.
    ///
    /// # Errors
    /// The socket's error.
    pub fn try_send(&mut self, rest: &mut &[u8]) -> IoResult<bool> {
        let taken = self.session.writer().write(rest)?;
        *rest = rest.get(taken..).unwrap_or_default();
        let mut has_sent = false;
        while self.session.wants_write() {
            match self.session.write_tls(&mut ReadySocket(&self.socket)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => has_sent = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(has_sent)
    }

    /// True if encrypted bytes wait for the socket: some 64 KiB at most.
    pub fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Sends the end of TLS if the socket takes it at once: a client without it may report a cut connection.
    pub fn end(&mut self) {
        self.session.send_close_notify();
        let _closed = self.session.write_tls(&mut ReadySocket(&self.socket));
    }
}

/// A socket as the session reads and writes it: by what is possible at once.
struct ReadySocket<'a>(&'a TcpStream);

impl Read for ReadySocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for ReadySocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> IoResult<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
