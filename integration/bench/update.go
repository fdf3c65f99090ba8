package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// updateTask is a data update that fills a field of each record.
const updateTask = "updates:\n- {name: fill, kind: documents, version: v1, lens: update.yaml, description: a field of each record}\n"

const updateLens = "lens: 1\noperations:\n  - add: {field: schema, value: 2}\n"

// update runs the data update and returns its outcome.
func (s *system) update(ctx context.Context) (outcome string, err error) {
	task, err := s.registry.Task("fill")
	if err != nil {
		return "", err
	}
	_, err = s.store.Apply(ctx, upgradestate.BeginUpdate{Update: upgradestate.Update{
		ID: "fill", Name: task.Name, Version: task.Version, Kind: task.Kind, Hash: task.Hash(),
	}})
	if err != nil {
		return "", err
	}
	err = s.poll(ctx, 10*time.Millisecond, func() (bool, error) {
		// A finished update is found only in the history.
		for _, e := range s.now().History {
			if e.What == "update" && e.ID == "fill" && e.Outcome != "" {
				outcome = e.Outcome
			}
		}
		return outcome != "", nil
	})
	return outcome, err
}

// updateInPlace runs a data update over all records of a kind.
func updateInPlace(ctx context.Context, b *bench, _ int) error {
	records := b.others / 2
	d := b.small("", records)
	// A database of its own, because an update changes the records.
	sp := spec{from: b.from, to: b.to, database: scratch("update"), kinds: map[string]bool{kindName: true}, lens: d.lens, updates: updateTask}
	defer b.from.drop(ctx, sp.database)
	if err := d.insertInto(ctx, b.from.client.Database(sp.database).Collection(kindName), records); err != nil {
		return err
	}
	s, err := b.deploy(ctx, sp)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	begun := time.Now()
	outcome, err := s.update(ctx)
	if err == nil {
		b.figure("update.rate", float64(records)/time.Since(begun).Seconds(), "A data update by a lens that fills one field of each of %d records of %d B of a fixed-name kind, one controller, nobody writes: %s.", records, b.size, outcome)
	}
	return err
}

// updateBesideClients makes clients write small transactions through a server's store, first alone
// and then during a data update of the same records.
func updateBesideClients(ctx context.Context, b *bench, _ int) error {
	const rate, written = 100, 2 // transactions per second, and records per transaction
	records := b.others / 2
	sp := spec{from: b.from, to: b.to, database: scratch("update"), inside: true, updates: updateTask}
	defer b.from.drop(ctx, sp.database)
	s, err := b.deploy(ctx, sp)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	v1, _ := s.now().Namespace("v1")
	kind, _ := v1.Kind(kindName)
	if err := b.small("", records).insertInto(ctx, b.from.client.Database(sp.database).Collection(kind.Physical), records); err != nil {
		return err
	}
	ns, err := mongostore.Open(ctx, mongostore.Config{URI: b.from.server.URI(), Database: sp.database})
	if err != nil {
		return err
	}
	defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // scratch
	store, toks := ns.Client(), record.Tokens{kindName: syncer.TokenOf(kind)}
	write := func(ctx context.Context, rng *rand.Rand) error {
		var ms []record.Mutation
		// The records of a transaction are spread over the whole kind.
		first := rng.IntN(records)
		for n := range written {
			i := (first + n*records/written) % records
			doc, err := bson.Marshal(document(i, b.size))
			if err != nil {
				return err
			}
			ms = append(ms, record.Mutation{Kind: kindName, Key: record.StringKey(key(i)), Doc: doc})
		}
		return store.Write(ctx, toks, ms)
	}
	// The quiet run comes first, in the same deployment, as the base of the comparison.
	alone := &clients{rate: rate, write: write}
	quiet, stop := context.WithTimeout(ctx, time.Duration(b.seconds)*time.Second)
	defer stop()
	alone.run(quiet)
	busy, stop := context.WithCancel(ctx)
	defer stop()
	beside, done := &clients{rate: rate, write: write}, make(chan float64, 1)
	go func() { done <- beside.run(busy) }()
	begun := time.Now()
	outcome, err := s.update(ctx)
	took := time.Since(begun).Seconds()
	stop()
	reached := <-done
	for _, err := range []error{err, alone.failed, beside.failed} {
		if err != nil {
			return fmt.Errorf("clients during an update: %w", err)
		}
	}
	b.figure("update.client.p99", percentile(beside.felt, 99), "Latency, from when it was due, of transactions of %d random records through mongostore's Client, as sample servers write; asked %d/s, reached %.0f/s (n = %d), during a data update by a lens of the same %d records of a managed kind, which took %.1f s: %s. The same clients without it, in the same run: p99 %.1f ms. The controller is in the benchmark's process.",
		written, rate, reached, len(beside.felt), records, took, outcome, percentile(alone.felt, 99))
	b.note("update.client.p99", fmt.Sprintf("p50 %.1f ms, without it %.1f ms; longest %.0f ms, without it %.0f ms.", percentile(beside.felt, 50), percentile(alone.felt, 50), percentile(beside.felt, 100), percentile(alone.felt, 100)))
	return nil
}
