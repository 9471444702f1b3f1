import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Asks Apache Kafka what it knows and thinks of configurations.
 *
 * <p>Reads one JSON list of questions from standard input and answers with one JSON list:
 * {"scope": S, "key": K, "value": V} asks about one value of a broker, topic, group or client-metrics
 * key; {"scope": "node", "properties": {...}} whether a broker would start with these; the scopes
 * "per-broker" and "cluster-wide" whether they could be changed at run time; {"scope":
 * "properties", "text": T} what java.util.Properties reads. An answer is {"parsed": V} or
 * {"refused": REASON}. After the last answer come all definitions.
 */
public class ConfigOracle {
    private static final Map<String, ConfigDef> SCOPES = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        SCOPES.put("broker", AbstractKafkaConfig.CONFIG_DEF);
        SCOPES.put("topic", LogConfig.configDefCopy());
        SCOPES.put("group", GroupConfig.CONFIG_DEF);
        SCOPES.put("client-metrics", ClientMetricsConfigs.configDef());
        SCOPES.put("broker-quota", QuotaConfig.brokerQuotaConfigs());
        ObjectMapper json = new ObjectMapper();
        List<Object> answers = new ArrayList<>();
        for (JsonNode question : json.readTree(System.in)) {
            answers.add(answer(question));
        }
        answers.add(definitions());
        json.writeValue(System.out, answers);
        // Kafka leaves threads behind that would keep the process.
        System.exit(0);
    }

    private static Map<String, Object> answer(JsonNode question) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            answer.put("parsed", parsed(question));
        } catch (Exception refusal) {
            answer.put("refused", String.valueOf(refusal.getMessage()));
        }
        return answer;
    }

    private static Map<String, String> readProperties(String text) throws Exception {
        Properties properties = new Properties();
        properties.load(new StringReader(text));
        Map<String, String> sorted = new TreeMap<>();
        properties.stringPropertyNames()
                .forEach(name -> sorted.put(name, properties.getProperty(name)));
        return sorted;
    }

    private static String parsed(JsonNode question) throws Exception {
        String scope = question.get("scope").asText();
        Properties properties = new Properties();
        if (question.has("properties")) {
            question.get("properties").fields().forEachRemaining(
                    entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        }
        switch (scope) {
            case "properties":
                return new ObjectMapper().writeValueAsString(
                        readProperties(question.get("text").asText()));
            case "node":
                KafkaConfig.fromProps(properties, false);
                return null;
            case "per-broker":
            case "cluster-wide":
                DynamicBrokerConfig.validateConfigs(properties, scope.equals("per-broker"));
                return null;
            default:
                String name = question.get("key").asText();
                ConfigDef.ConfigKey key = SCOPES.get(scope).configKeys().get(name);
                Object value =
                        ConfigDef.parseType(name, question.get("value").asText(), key.type);
                if (key.validator != null) {
                    key.validator.ensureValid(name, value);
                }
                return ConfigDef.convertToString(value, key.type);
        }
    }

    private static Map<String, Object> definitions() {
        Map<String, Object> scopes = new LinkedHashMap<>();
        SCOPES.forEach((scope, definition) -> scopes.put(scope, keys(definition)));
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("scopes", scopes);
        all.put("update_modes", DynamicBrokerConfig.dynamicConfigUpdateModes());
        Map<String, Object> topicSynonyms = new LinkedHashMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((topicKey, synonyms) ->
                topicSynonyms.put(topicKey, synonyms.stream().map(s -> s.name()).toList()));
        all.put("topic_synonyms", topicSynonyms);
        Map<String, Object> groupSynonyms = new LinkedHashMap<>();
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach(
                (groupKey, synonym) -> groupSynonyms.put(groupKey, synonym.orElse(null)));
        all.put("group_synonyms", groupSynonyms);
        return all;
    }

    private static Map<String, Object> keys(ConfigDef definition) {
        Map<String, Object> keys = new LinkedHashMap<>();
        definition.configKeys().forEach((name, key) -> {
            Map<String, Object> facts = new LinkedHashMap<>();
            facts.put("type", key.type.name());
            facts.put("has_default", key.hasDefault());
            facts.put("default", key.hasDefault()
                    ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            facts.put("validator", key.validator == null ? null : key.validator.toString());
            facts.put("importance", key.importance.name());
            facts.put("internal", key.internalConfig);
            keys.put(name, facts);
        });
        return keys;
    }
}
