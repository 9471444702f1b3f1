import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.common.Node;

/** Prints what Kafka's own AdminClient learns from a node: cluster id, controller, nodes, topics. */
public class AdminProbe {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> configuration = Map.of(arguments[0], arguments[1]);
        try (Admin admin = Admin.create(configuration)) {
            DescribeClusterResult cluster = admin.describeCluster();
            System.out.println("cluster=" + cluster.clusterId().get(60, TimeUnit.SECONDS));
            System.out.println("controller=" + cluster.controller().get(60, TimeUnit.SECONDS).id());
            for (Node node : cluster.nodes().get(60, TimeUnit.SECONDS)) {
                System.out.println("node=" + node.id() + "@" + node.host() + ":" + node.port());
            }
            if (arguments[0].equals("bootstrap.servers")) {
                System.out.println("topics=" + admin.listTopics().names().get(60, TimeUnit.SECONDS));
            }
        }
    }
}
