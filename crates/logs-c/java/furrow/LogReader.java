package furrow;

import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** A log that is read, for the recovery of the program that wrote it. Any thread may call any method. */
public final class LogReader implements AutoCloseable {
  static {
    System.loadLibrary("furrow_log");
  }

  /** Held for reading by calls, and for writing by the close: no call uses a handle that is gone. */
  private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();

  private long handle;

  private LogReader(long handle) {
    this.handle = handle;
  }

  /** Opens a log for reading. Of the options only the drive matters. */
  public static LogReader open(Path path, LogFile.Options options) throws IOException {
    return new LogReader(open0(path.toString(), options.driveOrEmpty()));
  }

  /** Number of bytes of the log. In an ordinary file zeros behind the appended bytes are among them, until the log is closed. */
  public long length() throws IOException {
    lock.readLock().lock();
    try {
      return length0(handle);
    } finally {
      lock.readLock().unlock();
    }
  }

  /** Reads bytes at {@code offset}. Returns their number: fewer than the array has only at the log's end. */
  public int read(long offset, byte[] into) throws IOException {
    lock.readLock().lock();
    try {
      return read0(handle, offset, into);
    } finally {
      lock.readLock().unlock();
    }
  }

  /** Ends reading. Later calls fail; a second close does nothing. */
  @Override
  public void close() throws IOException {
    lock.writeLock().lock();
    try {
      long closing = handle;
      handle = 0;
      close0(closing);
    } finally {
      lock.writeLock().unlock();
    }
  }

  private static native long open0(String path, String drive) throws IOException;

  private static native long length0(long handle) throws IOException;

  private static native int read0(long handle, long offset, byte[] into) throws IOException;

  private static native void close0(long handle) throws IOException;
}
