package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// engineRecords is the number of records copied in each direction between etcd and MongoDB.
const engineRecords = 100_000

// atOnce is the number of records in one etcd transaction: etcd's default limit.
const atOnce = 128

// acrossEngines copies from etcd to MongoDB and back. It compares each copy with etcd's own reads
// or writes of the same size in the same run.
func acrossEngines(ctx context.Context, b *bench, round int) error {
	server, err := embedetcd.Start(ctx, embedetcd.Config{Dir: filepath.Join(b.dir, scratch("records"))})
	if err != nil {
		return err
	}
	// An etcd of its own, because the records would crowd the coordination's one.
	defer server.Close() //nolint:errcheck // its folder is removed with all others
	conn, err := etcdconn.Open(ctx, etcdconn.Config{Endpoints: server.Endpoints()})
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // no request is in progress
	// The limits come from the same run as the copies.
	writes, reads, err := b.bareEtcd(ctx, conn)
	if err != nil {
		return fmt.Errorf("etcd alone: %w", err)
	}
	for _, way := range []struct {
		row, version string
		limit        float64
		of           string
	}{{"engines.out", "v1", reads, "read"}, {"engines.back", "v2", writes, "write"}} {
		speed, err := b.acrossEngines(ctx, conn, way.version)
		if err != nil {
			return fmt.Errorf("%s: %w", way.row, err)
		}
		b.against(way.row, speed, way.limit, "%d records of %d B of a managed kind; the controller and the etcd of the records are in the benchmark's process. "+
			"The limit: what %d clients of etcd %s of such values in the same run, %d at a time, without a condition.", engineRecords, b.size, b.workers, way.of, atOnce)
	}
	return nil
}

// bareEtcd writes records with a plain etcd client and reads them again. It returns records per
// second.
func (b *bench) bareEtcd(ctx context.Context, conn *etcdconn.Conn) (writes, reads float64, err error) {
	name := func(i int) string { return "/bare/" + key(i) }
	each := func(do func(ctx context.Context, from, to int) error) (float64, error) {
		begun := time.Now()
		g, gctx := errgroup.WithContext(ctx)
		for w := range b.workers {
			g.Go(func() error { return do(gctx, engineRecords*w/b.workers, engineRecords*(w+1)/b.workers) })
		}
		err := g.Wait()
		return engineRecords / time.Since(begun).Seconds(), err
	}
	writes, err = each(func(ctx context.Context, from, to int) error {
		for ; from < to; from += atOnce {
			var ops []clientv3.Op
			for i := from; i < min(from+atOnce, to); i++ {
				doc, err := bson.Marshal(document(i, b.size))
				if err != nil {
					return err
				}
				ops = append(ops, clientv3.OpPut(name(i), string(doc)))
			}
			// No condition: the limit is the fastest possible write.
			if _, err := conn.Txn(ctx).Then(ops...).Commit(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	reads, err = each(func(ctx context.Context, from, to int) error {
		for ; from < to; from += atOnce {
			if _, err := conn.Get(ctx, name(from), clientv3.WithRange(name(min(from+atOnce, to)))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	// The copies must find etcd empty.
	_, err = conn.Delete(ctx, "/bare/", clientv3.WithPrefix())
	return writes, reads, err
}

// acrossEngines copies from v1 to v2, and returns records per second. The given version is in etcd.
func (b *bench) acrossEngines(ctx context.Context, conn *etcdconn.Conn, version string) (float64, error) {
	prefix := "/" + scratch("records")
	s, err := b.deploy(ctx, spec{from: b.from, to: b.to, database: scratch("old"), inside: true, inEtcd: map[string]string{version: prefix}, etcd: conn.Endpoints()[0]})
	if err != nil {
		return 0, err
	}
	defer s.close(ctx)
	store, err := etcdstore.New(conn, etcdstore.Config{Prefix: prefix + "/"})
	if err != nil {
		return 0, err
	}
	at := func(version string) record.Token { // the token changes at the end of the copy
		ns, _ := s.now().Namespace(version)
		kind, _ := ns.Kind(kindName)
		return record.Token{Kind: kindName, Name: kind.Physical, ID: kind.ID}
	}
	// The target in MongoDB is counted by metadata; etcd needs a request.
	copied := func() error { return s.awaitCopied(ctx, engineRecords) }
	if version == "v1" {
		err = b.fillEtcd(ctx, store, at("v1"))
	} else {
		err = b.small("", engineRecords).insertInto(ctx, b.from.client.Database(s.database).Collection(at("v1").Name), engineRecords)
		copied = func() error {
			return s.poll(ctx, 50*time.Millisecond, func() (bool, error) { // a count has a cost here
				size, err := store.Size(ctx, at("v2"))
				// The token may change between the read of the record and this request.
				if errors.Is(err, record.ErrFenced) {
					err = nil
				}
				return size.Records >= engineRecords, err
			})
		}
	}
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := s.begin(ctx, true); err != nil {
		return 0, err
	}
	if err := copied(); err != nil {
		return 0, fmt.Errorf("copy: %w", err)
	}
	took := time.Since(begun)
	// A controller that still compares would disturb the deletion, and the next copy.
	s.halt()
	_, err = conn.Delete(ctx, prefix+"/", clientv3.WithPrefix())
	return engineRecords / took.Seconds(), err
}

// fillEtcd loads the records of a kind.
func (b *bench) fillEtcd(ctx context.Context, store *etcdstore.Store, tok record.Token) error {
	all := make([]int, engineRecords)
	for i := range all {
		all[i] = i
	}
	for some := range slices.Chunk(all, 10*atOnce) {
		// Load needs the token that the controller has given the collection.
		batch := record.Batch{Tokens: record.Tokens{kindName: tok}, Epoch: 1}
		for _, i := range some {
			doc, err := bson.Marshal(document(i, b.size))
			if err != nil {
				return err
			}
			batch.Groups = append(batch.Groups, record.GroupWrite{Group: key(i), Version: record.Version{7: 1}, Writes: []record.Write{{Kind: kindName, Key: record.StringKey(key(i)), Doc: doc}}})
		}
		if _, err := store.Load(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
