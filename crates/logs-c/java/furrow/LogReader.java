package furrow;

import java.io.IOException;
import java.nio.file.Path;

/** A log that is read, for the recovery of the program that wrote it. Any thread may call any method. */
public final class LogReader extends Handle {
  private LogReader(long handle) {
    super(handle);
  }

  /** Opens a log for reading. Of the options only the drive matters. */
  public static LogReader open(Path path, LogFile.Options options) throws IOException {
    return new LogReader(open0(path.toString(), options.driveOrEmpty()));
  }

  /** Number of bytes of the log. In an ordinary file zeros behind the appended bytes are among them, until the log is closed. */
  public long length() throws IOException {
    return call(handle -> length0(handle));
  }

  /** Reads bytes at {@code offset}. Returns their number: fewer than the array has only at the log's end. */
  public int read(long offset, byte[] into) throws IOException {
    return call(handle -> read0(handle, offset, into));
  }

  /** Ends reading. Later calls fail; a second close does nothing. */
  @Override
  public void close() throws IOException {
    super.close();
  }

  @Override
  void free(long handle) throws IOException {
    close0(handle);
  }

  private static native long open0(String path, String drive) throws IOException;

  private static native long length0(long handle) throws IOException;

  private static native int read0(long handle, long offset, byte[] into) throws IOException;

  private static native void close0(long handle) throws IOException;
}
