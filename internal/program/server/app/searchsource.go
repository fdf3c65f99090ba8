package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// searchSource reads a version's namespace for its index, under the names of the Deployment.
type searchSource struct {
	places
	kinds   []string
	db      record.Reader
	watcher record.Watcher
}

var _ sink.Source = (*searchSource)(nil)

// collectionsOf identifies the collections of kinds in a version. It is empty until all are there.
func collectionsOf(d upgradestate.Deployment, version string, kinds []string) string {
	ns, ok := d.Namespace(version)
	if !ok || upgradestate.Retired(d, version) {
		return ""
	}
	var all []string
	for _, kind := range slices.Sorted(slices.Values(kinds)) {
		k, ok := ns.Kind(kind)
		if !ok {
			return ""
		}
		// A backend without identities names each collection once only.
		id := k.ID
		if id == "" {
			id = "-"
		}
		all = append(all, kind+"="+id)
	}
	return ns.Location + " " + strings.Join(all, " ")
}

// Identity identifies the present collections.
func (s *searchSource) Identity(ctx context.Context) (string, error) {
	d, err := s.deployments.Get(ctx)
	if known := s.latest.Load(); err != nil {
		// Without etcd the server goes on with what it knows.
		if known == nil || ctx.Err() != nil {
			return "", err
		}
		d = *known
	}
	s.latest.Store(&d)
	if id := collectionsOf(d, s.version, s.kinds); id != "" {
		return id, nil
	}
	return "", fmt.Errorf("%s has no collections: %w", s.version, record.ErrNotFound)
}

// Position returns the present place of the database.
func (s *searchSource) Position(ctx context.Context) (record.Position, error) {
	return s.watcher.Position(ctx)
}

// Watch follows the kinds through all their names.
func (s *searchSource) Watch(ctx context.Context, from record.Position) (record.Stream, error) {
	kinds := make([]record.KindSpec, 0, len(s.kinds))
	for _, kind := range s.kinds {
		kinds = append(kinds, record.KindSpec{Name: kind})
	}
	return s.watcher.Watch(ctx, from, kinds)
}

// Scan reads a page of a kind.
func (s *searchSource) Scan(ctx context.Context, kind string, from record.Cursor, limit int, notBefore record.Version) (page record.Page, err error) {
	err = s.use(ctx, []string{kind}, func(toks record.Tokens) (err error) {
		page, err = s.db.Scan(ctx, record.ScanRequest{Token: toks[kind], Range: record.Range{From: from}, Limit: limit, NotBefore: notBefore})
		return err
	})
	return page, err
}

// Read reads records at one snapshot.
func (s *searchSource) Read(ctx context.Context, sels []record.Selector, notBefore record.Version, bytes int) (snap record.Snapshot, err error) {
	kinds := map[string]bool{}
	for _, sel := range sels {
		kinds[sel.Kind] = true
	}
	err = s.use(ctx, slices.Collect(maps.Keys(kinds)), func(toks record.Tokens) (err error) {
		snap, err = s.db.Read(ctx, record.ReadRequest{Tokens: toks, Select: sels, NotBefore: notBefore, Bytes: bytes})
		return err
	})
	return snap, err
}
