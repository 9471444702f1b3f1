package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// saramaMember consumes in the background.
type saramaMember struct {
	share
	topic  string
	group  sarama.ConsumerGroup
	stop   context.CancelFunc
	done   chan struct{}
	marked sarama.ConsumerGroupSession
}

func saramaGroupConfig() *sarama.Config {
	config := saramaConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	config.Consumer.Group.Session.Timeout = session
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		sarama.NewBalanceStrategySticky(),
	}
	config.Producer.Partitioner = sarama.NewManualPartitioner
	return config
}

func joinSarama(servers []string, topic, groupID, instance string) *saramaMember {
	config := saramaGroupConfig()
	config.Consumer.Group.InstanceId = instance
	group, err := sarama.NewConsumerGroup(servers, groupID, config)
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	made := &saramaMember{
		share: newShare(), topic: topic, group: group, stop: stop, done: make(chan struct{}),
	}
	go func() {
		for err := range group.Errors() {
			check(err)
		}
	}()
	go func() {
		defer close(made.done)
		for ctx.Err() == nil {
			err := group.Consume(ctx, []string{topic}, made)
			if !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				check(err)
			}
		}
	}()
	return made
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.gain(session.Claims()[m.topic])
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.marked = session
	return nil
}

func (m *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	m.lose(session.Claims()[m.topic])
	return nil
}

func (m *saramaMember) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for message := range claim.Messages() {
		// In this order: who sees it among those that are read may commit at once.
		session.MarkMessage(message, "")
		m.keep(message.Value)
	}
	return nil
}

func (m *saramaMember) commit() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.marked.Commit()
}

func (m *saramaMember) leave() {
	m.stop()
	<-m.done
	check(m.group.Close())
}

func fillSarama(servers []string, topic string, first int) {
	producer, err := sarama.NewSyncProducer(servers, saramaGroupConfig())
	check(err)
	messages := []*sarama.ProducerMessage{}
	for number := first; number < first+records; number++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topic, Partition: int32(number % partitions),
			Value: sarama.StringEncoder(strconv.Itoa(number)),
		})
	}
	check(producer.SendMessages(messages))
	check(producer.Close())
}

func saramaTransactions(servers []string, topic, group, source string) {
	config := saramaGroupConfig()
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = topic
	producer, err := sarama.NewSyncProducer(servers, config)
	check(err)
	for number := 0; number < 6; number++ {
		check(producer.BeginTxn())
		messages := []*sarama.ProducerMessage{}
		for partition := int32(0); partition < partitions; partition++ {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: topic, Partition: partition,
				Value: sarama.StringEncoder(fmt.Sprintf("%d-%d", number, partition)),
			})
		}
		check(producer.SendMessages(messages))
		offset := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: int64(number)}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{source: {offset}}
		check(producer.AddOffsetsToTxn(offsets, group))
		if number%3 == 1 {
			check(producer.AbortTxn())
		} else {
			check(producer.CommitTxn())
		}
	}
	check(producer.Close())
	admin, err := sarama.NewClusterAdmin(servers, config)
	check(err)
	// An end is answered before everybody has heard of it.
	committed := int64(-1)
	deadline := time.Now().Add(patience)
	for committed != 5 && time.Now().Before(deadline) {
		found, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{source: {0}})
		check(err)
		committed = found.GetBlock(source, 0).Offset
	}
	fmt.Printf("committed=%d\n", committed)
	check(admin.DeleteConsumerGroup(group))
	check(admin.Close())
}

func saramaGroups(servers []string, topics []string) {
	source := topics[0]
	comeAndGo(
		func() member { return joinSarama(servers, source, "sarama-"+source, "") },
		func(first int) { fillSarama(servers, source, first) })
	staticRestart(func(name string) (member, *share) {
		made := joinSarama(servers, source, "sarama-static-"+source, name)
		return made, &made.share
	})
	saramaTransactions(servers, topics[1], "sarama-offsets-"+source, source)
	readCommitted(servers, "whole", topics[1], 4*partitions)
}
