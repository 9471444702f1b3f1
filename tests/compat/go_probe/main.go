// Two Go clients produce to a partition and read it by assignment. Each prints what it has found,
// one "name=value" a line.
//
// Arguments: franz-go or sarama, bootstrap servers, a topic with one partition. Others are in
// groups.go.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const perProducer = 5

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func value(codec, acks string, number int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%s %s %d ", codec, acks, number), 20))
}

func franzGo(servers []string, topic string) {
	base := []kgo.Opt{
		kgo.SeedBrokers(servers...),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
		kgo.RequestTimeoutOverhead(patience),
	}
	compressions := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(),
		"zstd": kgo.ZstdCompression(),
	}
	modes := map[string][]kgo.Opt{
		"0":          {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
		"1":          {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"all":        {kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DisableIdempotentWrite()},
		"idempotent": {},
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sent := 0
	for _, codec := range codecs {
		for _, acks := range []string{"0", "1", "all", "idempotent"} {
			options := append(append([]kgo.Opt{}, base...), modes[acks]...)
			options = append(options, kgo.ProducerBatchCompression(compressions[codec]))
			client, err := kgo.NewClient(options...)
			check(err)
			records := []*kgo.Record{}
			for number := 0; number < perProducer; number++ {
				records = append(records, &kgo.Record{
					Topic: topic, Value: value(codec, acks, number),
					Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}},
				})
			}
			check(client.ProduceSync(ctx, records...).FirstErr())
			sent += len(records)
			client.Close()
		}
	}
	fmt.Printf("sent=%d\n", sent)
	read := func(name string, offset kgo.Offset, count int) {
		start := map[string]map[int32]kgo.Offset{topic: {0: offset}}
		client, err := kgo.NewClient(append(base, kgo.ConsumePartitions(start))...)
		check(err)
		defer client.Close()
		records := []*kgo.Record{}
		for len(records) < count {
			fetches := client.PollFetches(ctx)
			check(fetches.Err())
			records = append(records, fetches.Records()...)
		}
		fmt.Printf("%s=%d %d %d\n", name, len(records), records[0].Offset, len(records[0].Headers))
	}
	read("beginning", kgo.NewOffset().AtStart(), sent)
	read("offset", kgo.NewOffset().At(98), 2)
	read("relative", kgo.NewOffset().AtEnd().Relative(-1), 1)
	read("time", kgo.NewOffset().AfterMilli(1), sent)
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	// It tries a few times within a second, while a cluster makes the topic of its groups, and for
	// five seconds, while a transaction's markers are written.
	config.Metadata.Retry.Max = 200
	config.Producer.Transaction.Retry.Max = 1000
	return config
}

func saramaGo(servers []string, topic string) {
	compressions := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
		"zstd": sarama.CompressionZSTD,
	}
	modes := map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal,
		"all": sarama.WaitForAll, "idempotent": sarama.WaitForAll,
	}
	sent := 0
	for _, codec := range codecs {
		for _, acks := range []string{"0", "1", "all", "idempotent"} {
			config := saramaConfig()
			config.Producer.Compression = compressions[codec]
			config.Producer.RequiredAcks = modes[acks]
			if acks == "idempotent" {
				config.Producer.Idempotent = true
				config.Net.MaxOpenRequests = 1
			}
			producer, err := sarama.NewSyncProducer(servers, config)
			check(err)
			messages := []*sarama.ProducerMessage{}
			for number := 0; number < perProducer; number++ {
				messages = append(messages, &sarama.ProducerMessage{
					Topic: topic, Value: sarama.ByteEncoder(value(codec, acks, number)),
					Headers: []sarama.RecordHeader{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b")}},
				})
			}
			check(producer.SendMessages(messages))
			sent += len(messages)
			check(producer.Close())
		}
	}
	fmt.Printf("sent=%d\n", sent)
	client, err := sarama.NewClient(servers, saramaConfig())
	check(err)
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	read := func(name string, offset int64, count int) {
		partition, err := consumer.ConsumePartition(topic, 0, offset)
		check(err)
		first := <-partition.Messages()
		for number := 1; number < count; number++ {
			<-partition.Messages()
		}
		fmt.Printf("%s=%d %d %d\n", name, count, first.Offset, len(first.Headers))
		check(partition.Close())
	}
	read("beginning", sarama.OffsetOldest, sent)
	read("offset", 98, 2)
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	check(err)
	read("relative", end-1, 1)
	found, err := client.GetOffset(topic, 0, 1)
	check(err)
	fmt.Printf("time=%d\n", found)
}

func main() {
	if os.Args[1] == "groups" {
		servers, topics := strings.Split(os.Args[3], ","), os.Args[4:]
		if os.Args[2] == "sarama" {
			saramaGroups(servers, topics)
		} else {
			franzGroups(servers, os.Args[2] == "franz-go-848", topics)
		}
		return
	}
	servers, topic := strings.Split(os.Args[2], ","), os.Args[3]
	switch os.Args[1] {
	case "transform":
		transformUntilInputEnds(servers, topic, os.Args[4], os.Args[5])
	case "sarama":
		saramaGo(servers, topic)
	default:
		franzGo(servers, topic)
	}
}
