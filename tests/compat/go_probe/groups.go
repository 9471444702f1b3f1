// Groups and transactions of the two clients.
//
// Arguments of "groups": franz-go, franz-go-848 or sarama, bootstrap servers, and three topics with
// four partitions. Arguments of "transform": bootstrap servers, source, target, group; it runs until
// its input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 4
	records    = 200
	// Only ends what hangs.
	patience = 120 * time.Second
	// Nobody is lost because the machine does other work.
	session = 60 * time.Second
)

// member is what the probe needs of a consumer in a group, whoever's it is.
type member interface {
	owned() []int32
	read() []int
	commit()
	leave()
}

// share is what a member has been given, has lost and has read.
type share struct {
	mutex  sync.Mutex
	parts  map[int32]bool
	lost   map[int32]bool
	values []int
}

func newShare() share {
	return share{parts: map[int32]bool{}, lost: map[int32]bool{}}
}

func (s *share) gain(given []int32) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, each := range given {
		s.parts[each] = true
	}
}

func (s *share) lose(taken []int32) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, each := range taken {
		delete(s.parts, each)
		s.lost[each] = true
	}
}

func (s *share) keep(value []byte) {
	number, err := strconv.Atoi(string(value))
	check(err)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.values = append(s.values, number)
}

func (s *share) owned() []int32 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return keys(s.parts)
}

func (s *share) lostParts() []int32 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return keys(s.lost)
}

func (s *share) forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.lost = map[int32]bool{}
}

func (s *share) read() []int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.values)
}

func keys(of map[int32]bool) []int32 {
	found := []int32{}
	for each := range of {
		found = append(found, each)
	}
	slices.Sort(found)
	return found
}

func until(what string, condition func() bool, members ...member) {
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			for _, each := range members {
				fmt.Fprintln(os.Stderr, what, each.owned(), len(each.read()))
			}
			os.Exit(1)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func shared(first, second member) func() bool {
	return func() bool { return len(first.owned()) == 2 && len(second.owned()) == 2 }
}

func ownsAll(who member) func() bool {
	return func() bool { return len(who.owned()) == partitions }
}

// franzMember polls in the background.
type franzMember struct {
	share
	client *kgo.Client
	done   chan struct{}
}

func franzContext(is848 bool) context.Context {
	if !is848 {
		return context.Background()
	}
	return context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
}

func franzBase(servers []string, is848 bool) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(servers...),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
		kgo.WithContext(franzContext(is848)),
		// It would complain of an answer that takes ten seconds.
		kgo.RequestTimeoutOverhead(patience),
	}
}

func franzGroup(topic, group string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
	}
}

func joinFranz(servers []string, is848 bool, topic, group string, more ...kgo.Opt) *franzMember {
	made := &franzMember{share: newShare(), done: make(chan struct{})}
	lost := func(_ context.Context, _ *kgo.Client, each map[string][]int32) { made.lose(each[topic]) }
	options := append(franzBase(servers, is848), franzGroup(topic, group)...)
	options = append(options,
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, each map[string][]int32) {
			made.gain(each[topic])
		}),
		kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost))
	client, err := kgo.NewClient(append(options, more...)...)
	check(err)
	made.client = client
	go func() {
		defer close(made.done)
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			check(fetches.Err())
			fetches.EachRecord(func(each *kgo.Record) { made.keep(each.Value) })
		}
	}()
	return made
}

func (m *franzMember) commit() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	check(m.client.CommitUncommittedOffsets(ctx))
}

func (m *franzMember) leave() {
	m.client.Close()
	<-m.done
}

func fillFranz(servers []string, topic string, first int) {
	options := append(franzBase(servers, false), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	made := []*kgo.Record{}
	for number := first; number < first+records; number++ {
		made = append(made, &kgo.Record{
			Topic: topic, Partition: int32(number % partitions),
			Value: []byte(strconv.Itoa(number)),
		})
	}
	check(client.ProduceSync(context.Background(), made...).FirstErr())
}

// comeAndGo is the story of two members of which the second comes later and leaves earlier.
func comeAndGo(join func() member, fill func(first int)) {
	first := join()
	until("alone", ownsAll(first), first)
	fill(0)
	until("first", func() bool { return len(first.read()) >= records }, first)
	first.commit()
	second := join()
	until("shared", shared(first, second), first, second)
	fill(records)
	until("both", func() bool { return len(first.read())+len(second.read()) >= 2*records }, first, second)
	fmt.Printf("of-second=%d\n", len(second.read()))
	first.commit()
	second.commit()
	second.leave()
	until("alone again", ownsAll(first), first)
	read := append(first.read(), second.read()...)
	sort.Ints(read)
	isOnce := len(read) == 2*records
	for at, number := range read {
		isOnce = isOnce && at == number
	}
	fmt.Printf("each-once=%v\n", isOnce)
	first.leave()
}

func staticRestart(join func(name string) (member, *share)) {
	first, itsShare := join("one")
	second, _ := join("two")
	until("static", shared(first, second), first, second)
	theirs := second.owned()
	itsShare.forget()
	second.leave()
	again, _ := join("two")
	until("restarted", func() bool { return slices.Equal(again.owned(), theirs) }, first, again)
	fmt.Printf("unnoticed=%v\n", len(itsShare.lostParts()) == 0)
	first.leave()
	again.leave()
}

func franzStays(servers []string, is848 bool, topic string) {
	group := "franz-stays-" + topic
	first := joinFranz(servers, is848, topic, group)
	until("alone", ownsAll(first), first)
	second := joinFranz(servers, is848, topic, group)
	until("shared", shared(first, second), first, second)
	fmt.Printf("moved-only=%v\n", slices.Equal(first.lostParts(), second.owned()))
	first.leave()
	second.leave()
}

func franzTransactions(servers []string, topic string) {
	options := append(franzBase(servers, false),
		kgo.TransactionalID(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for number := 0; number < 6; number++ {
		check(client.BeginTransaction())
		for partition := int32(0); partition < partitions; partition++ {
			value := []byte(fmt.Sprintf("%d-%d", number, partition))
			check(client.ProduceSync(
				ctx, &kgo.Record{Topic: topic, Partition: partition, Value: value}).FirstErr())
		}
		check(client.EndTransaction(ctx, kgo.TransactionEndTry(number%3 != 1)))
	}
}

// readCommitted prints what there is to read, sorted.
func readCommitted(servers []string, name, topic string, count int) {
	options := append(franzBase(servers, false), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	values := []string{}
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(each *kgo.Record) { values = append(values, string(each.Value)) })
	}
	sort.Strings(values)
	fmt.Printf("%s=%s\n", name, strings.Join(values, ","))
}

// franzTransform copies from a topic to another, exactly once, until there is a reason to stop. It
// aborts its first transaction.
func franzTransform(
	servers []string, is848 bool, source, target, group string, isDone func(count int) bool,
) {
	options := append(franzBase(servers, is848), franzGroup(source, group)...)
	options = append(options, kgo.TransactionalID(group), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	session, err := kgo.NewGroupTransactSession(options...)
	check(err)
	defer session.Close()
	isFirst := true
	for count := 0; !isDone(count); {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := session.PollFetches(ctx)
		cancel()
		if fetches.NumRecords() == 0 {
			continue
		}
		check(session.Begin())
		failed := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(each *kgo.Record) {
			copied := &kgo.Record{Topic: target, Partition: each.Partition, Value: each.Value}
			session.Produce(context.Background(), copied, failed.Promise())
		})
		isGood := failed.Err() == nil && !isFirst
		isFirst = false
		isCommitted, err := session.End(context.Background(), kgo.TransactionEndTry(isGood))
		check(err)
		if isCommitted {
			count += fetches.NumRecords()
		}
	}
}

func franzGroups(servers []string, is848 bool, topics []string) {
	source := topics[0]
	comeAndGo(
		func() member { return joinFranz(servers, is848, source, "franz-"+source) },
		func(first int) { fillFranz(servers, source, first) })
	franzStays(servers, is848, source)
	// In the new protocol it leaves without its instance's name, which Kafka refuses too: it would
	// have to wait for the end of its own session.
	if !is848 {
		staticRestart(func(name string) (member, *share) {
			made := joinFranz(servers, is848, source, "franz-static-"+source, kgo.InstanceID(name))
			return made, &made.share
		})
	}
	franzTransactions(servers, topics[1])
	readCommitted(servers, "whole", topics[1], 4*partitions)
	isAll := func(count int) bool { return count >= 2*records }
	franzTransform(servers, is848, source, topics[2], "franz-transform-"+source, isAll)
	readCommitted(servers, "transformed", topics[2], 2*records)
}

func transformUntilInputEnds(servers []string, source, target, group string) {
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	franzTransform(servers, false, source, target, group, func(int) bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
}
