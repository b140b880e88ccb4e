package furrow;

import java.io.IOException;
import java.nio.file.Path;

/**
 * A log whose synced writes stay fast on a shared drive, in an ordinary file or on a zoned drive.
 *
 * <p>An ordinary file is the appended bytes, and zeros behind them until {@link #close}, which truncates it to the appended bytes. A program finds the end of its log after a crash by its
 * own records, which it reads by a {@link LogReader}, and goes on there with {@link #open}.
 *
 * <p>On a zoned drive ({@link Options#drive}) paths are those of the file system there. The process holds the drive while it has a log or reader there.
 *
 * <p>Any thread may call any method. Needs {@code libfurrow_log.so} in {@code java.library.path}.
 */
public final class LogFile extends Handle {
  /** How writes reach the kernel. */
  public enum How {
    /** By io_uring, each request with its priority. */
    REQUEST,
    /** By helper threads with that priority. */
    THREAD,
    /** By a process of its own, whose file may have the capability CAP_SYS_NICE that the program lacks. */
    PROCESS
  }

  /**
   * Settings. A number of 0 has its default; a negative room is none.
   *
   * @param writer the program of {@link How#PROCESS}; null for furrow-prio-writer, looked for in PATH
   * @param drive URL of the zoned drive that the log lies on, such as blk:/dev/nvme0n1, with none of the settings above; null: an ordinary file
   */
  public record Options(How how, int block, long room, long buffer, String writer, String drive) {
    /** Requests through io_uring, blocks of 4 KiB, 16 MiB of room, 8 MiB of buffer. */
    public static final Options DEFAULT = new Options(How.REQUEST, 0, 0, 0, null, null);

    /** The settings of a log on a zoned drive. */
    public static Options onDrive(String url) {
      return new Options(How.REQUEST, 0, 0, 0, null, url);
    }

    String driveOrEmpty() {
      return drive == null ? "" : drive;
    }
  }

  private LogFile(long handle) {
    super(handle);
  }

  /** Creates a log, and makes its name durable. Fails if the file exists. */
  public static LogFile create(Path path, Options options) throws IOException {
    return open(path, -1L, options, true);
  }

  /** Opens a log to go on at byte {@code end}, where the caller found its last record to end; drops what lies behind, durably: on a zoned drive by a copy of what lies before. */
  public static LogFile open(Path path, long end, Options options) throws IOException {
    if (end < 0) {
      throw new IOException("a log goes on at a place that is not negative");
    }
    return open(path, end, options, false);
  }

  private static LogFile open(Path path, long end, Options options, boolean create) throws IOException {
    String writer = options.writer == null ? "" : options.writer;
    int how = options.how.ordinal();
    long from = create ? -1 : end;
    String drive = options.driveOrEmpty();
    return new LogFile(open0(path.toString(), from, how, options.block, options.room, options.buffer, writer, drive));
  }

  /** Removes a log that nobody writes, durably. */
  public static void remove(Path path, Options options) throws IOException {
    remove0(path.toString(), options.driveOrEmpty());
  }

  /** Appends bytes, which stay together. Returns where they end. Ends in memory; waits while the buffer is full. */
  public long append(byte[] bytes) throws IOException {
    return call(handle -> append0(handle, bytes));
  }

  /** Makes all bytes below {@code upto} durable, and waits for that. After a failed write every append fails, and every sync of bytes above {@link #durable}. */
  public void sync(long upto) throws IOException {
    call(handle -> {
      sync0(handle, upto);
      return null;
    });
  }

  /** Number of appended bytes. */
  public long end() throws IOException {
    return call(handle -> end0(handle, false));
  }

  /** Number of bytes, from the log's begin, that are durable. */
  public long durable() throws IOException {
    return call(handle -> end0(handle, true));
  }

  /** True if the log's writes were real-time when it was opened, and on a zoned drive, whose scheduler never holds logs; false without CAP_SYS_NICE, where they are best effort of the highest level. */
  public boolean isRealTime() throws IOException {
    return call(handle -> isRealTime0(handle));
  }

  /** Why no room is zeroed ahead of the log any more, such as a full drive; null while there is room, and on a zoned drive. Without room each write may cost a commit of the file system's journal. */
  public String roomFailure() throws IOException {
    return call(handle -> roomFailure0(handle));
  }

  /** Makes everything durable and truncates the file to the appended bytes. Later calls fail; a second close does nothing. */
  @Override
  public void close() throws IOException {
    super.close();
  }

  @Override
  void free(long handle) throws IOException {
    close0(handle);
  }

  private static native long open0(
      String path, long end, int how, int block, long room, long buffer, String writer, String drive)
      throws IOException;

  private static native void remove0(String path, String drive) throws IOException;

  private static native long append0(long handle, byte[] bytes) throws IOException;

  private static native void sync0(long handle, long upto) throws IOException;

  private static native long end0(long handle, boolean durable) throws IOException;

  private static native boolean isRealTime0(long handle) throws IOException;

  private static native String roomFailure0(long handle) throws IOException;

  private static native void close0(long handle) throws IOException;
}
