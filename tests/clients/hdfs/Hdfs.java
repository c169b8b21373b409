import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * A name node, its HTTP on the port that it is given, and one data node, until the input ends. A line "restart" restarts the name node,
 * "safe" has it refuse writes until "unsafe"; each is answered by "ready".
 */
public final class Hdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new HdfsConfiguration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(arguments[0]).getAbsolutePath());
        settings.set("dfs.webhdfs.enabled", "true");
        settings.set("dfs.permissions.enabled", "false");
        settings.set("dfs.namenode.safemode.extension", "0");
        settings.set("dfs.datanode.hostname", "127.0.0.1");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings)
            .numDataNodes(1)
            .nameNodeHttpPort(Integer.parseInt(arguments[1]))
            .build();
        cluster.waitActive();
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            switch (line) {
                case "restart": cluster.restartNameNode(true); break;
                case "safe": cluster.getFileSystem().setSafeMode(org.apache.hadoop.fs.SafeModeAction.ENTER); break;
                case "unsafe": cluster.getFileSystem().setSafeMode(org.apache.hadoop.fs.SafeModeAction.LEAVE); break;
                default: throw new IllegalArgumentException(line);
            }
            System.out.println("ready");
        }
        System.exit(0);
    }
}
