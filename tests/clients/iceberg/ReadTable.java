import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.CloseableIterable;

/** Prints event_id, time and service of each row of the table in a directory, and how many snapshots it has. */
public class ReadTable {
    public static void main(String[] arguments) throws Exception {
        Table table = new HadoopTables(new Configuration()).load(arguments[0]);
        try (CloseableIterable<Record> rows = IcebergGenerics.read(table).build()) {
            for (Record row : rows) {
                System.out.println(row.getField("event_id") + "\t" + row.getField("time") + "\t" + row.getField("service"));
            }
        }
        int snapshots = 0;
        for (var ignored : table.snapshots()) {
            snapshots++;
        }
        System.out.println("snapshots\t" + snapshots);
    }
}
