// Package inspect answers what operators ask about the data of a deployment: how much each kind of
// each version holds, and what one record looks like. It changes nothing.
//
// A record is shown only where the configuration allows it (Inspector.Records), and never from a
// database with encryption keys: what is encrypted at rest must not be readable through the API.
//
// Begin to read at Inspector.
//
// It is not for users and may change with any version.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/extjson"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Space is what an Inspector calls of a database.
type Space interface {
	Size(ctx context.Context, tok record.Token) (record.Size, error)
	Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error)
	Scan(ctx context.Context, req record.ScanRequest) (record.Page, error)
}

// Inspector looks into the databases of a deployment. Its methods may be called concurrently. The
// fields must not change afterwards.
type Inspector struct {
	Deployment func(ctx context.Context) (upgradestate.Deployment, error)
	// Space returns the database of a version; nil: it is not configured here, or disabled.
	Space func(version string) Space
	// Encrypted reports whether the records of a version may be encrypted.
	Encrypted func(version string) bool
	Records   bool // Sample may show records

	mu    sync.Mutex
	sizes []*pb.KindSize // the latest
	at    time.Time      // of sizes
}

const (
	sizesFor = 10 * time.Second // how long sizes are given again, so that many pages cost as much as one
	patience = 20 * time.Second // for the sizes of all kinds
	together = 8                // kinds that are asked for at once
	// showable is the size of a document that a page can show, and send back to TryTransform.
	showable = 100 << 10
	places   = 16 // parts of a kind, of which a sample is the first record of one
)

// Sizes implements api.Inspector.
func (i *Inspector) Sizes(ctx context.Context) ([]*pb.KindSize, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.at) < sizesFor {
		return i.sizes, nil
	}
	d, err := i.Deployment(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var sizes []*pb.KindSize
	g := errgroup.Group{}
	g.SetLimit(together)
	for _, ns := range d.Namespaces {
		if upgradestate.Retired(d, ns.Version) {
			continue
		}
		toks, db := syncer.Tokens(d, ns.Version), i.Space(ns.Version)
		for _, kind := range slices.Sorted(maps.Keys(toks)) {
			size := &pb.KindSize{Version: ns.Version, Kind: kind}
			sizes = append(sizes, size)
			if db == nil {
				size.Problem = "its database is not configured here, or disabled"
				continue
			}
			g.Go(func() error {
				switch has, err := db.Size(bounded, toks[kind]); {
				case errors.Is(err, context.DeadlineExceeded):
					size.Problem = "the database does not answer in time"
				case err != nil:
					size.Problem = err.Error()
				default:
					size.Records, size.Bytes = has.Records, has.Bytes
				}
				return nil
			})
		}
	}
	if err := cmp.Or(g.Wait(), ctx.Err()); err != nil {
		return nil, err
	}
	i.sizes, i.at = sizes, time.Now()
	return sizes, nil
}

// Sample implements api.Inspector. The record is the first of a random part of the kind.
func (i *Inspector) Sample(ctx context.Context, version, kind string) (*pb.SampleRecordResponse, error) {
	if !i.Records {
		return nil, errors.New("records are not shown: set api.records: true in the configuration of the controllers, or paste a record")
	}
	d, err := i.Deployment(ctx)
	if err != nil {
		return nil, err
	}
	toks := syncer.Tokens(d, version)
	kinds := slices.Sorted(maps.Keys(toks))
	if kind == "" && len(kinds) == 1 {
		kind = kinds[0]
	}
	tok, there := toks[kind]
	if !there {
		return nil, fmt.Errorf("kind %q of %q: want a version with data and one of its kinds: %s", kind, version, strings.Join(kinds, ", "))
	}
	if i.Encrypted(version) {
		return nil, fmt.Errorf("the records of %s may be encrypted, and such records are not shown: paste a record", version)
	}
	db := i.Space(version)
	if db == nil {
		return nil, fmt.Errorf("the database of %s is not configured here, or disabled", version)
	}
	r, err := first(ctx, db, tok)
	if err != nil {
		return nil, err
	}
	switch {
	case r == nil:
		return &pb.SampleRecordResponse{Kind: kind}, nil
	case r.Err != nil:
		return nil, errors.New("the record that was found is not readable: ask again for another one")
	case len(r.Doc) > showable:
		return nil, fmt.Errorf("the record that was found has %d bytes, and at most %d are shown: ask again for another one", len(r.Doc), showable)
	}
	return &pb.SampleRecordResponse{Kind: kind, Record: extjson.Doc(r.Doc, 0)}, nil
}

// first returns the first record of a random part of a kind, or of the whole kind if that part is
// empty; nil: there is no record.
func first(ctx context.Context, db Space, tok record.Token) (*record.Record, error) {
	parts, err := db.Split(ctx, tok, places)
	if err != nil {
		return nil, fmt.Errorf("find a record: %w", err)
	}
	for _, at := range []record.Range{parts[rand.IntN(len(parts))], {}} { //nolint:gosec // nothing secret depends on the choice
		for {
			page, err := db.Scan(ctx, record.ScanRequest{Token: tok, Range: at, Limit: 1})
			if err != nil {
				return nil, fmt.Errorf("find a record: %w", err)
			}
			if len(page.Records) > 0 {
				return &page.Records[0], nil
			}
			// A page may be empty without being the last one.
			if page.Done {
				break
			}
			at.From = page.Next
		}
	}
	return nil, nil //nolint:nilnil // it is the documented result
}
