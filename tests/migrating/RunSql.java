import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs the statements of a file in Flink, one after the other, each to its end. */
public class RunSql {
  public static void main(String[] arguments) throws Exception {
    TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    tables.getConfig().set("parallelism.default", "1").set("table.local-time-zone", "UTC");
    for (String statement : Files.readString(Path.of(arguments[0])).split(";")) {
      if (!statement.isBlank()) {
        tables.executeSql(statement).await();
      }
    }
  }
}
