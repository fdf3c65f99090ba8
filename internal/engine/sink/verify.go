package sink

import (
	"context"
	"maps"
	"slices"
	"time"

	"dbcontroller.dev/record"
)

// Report is the result of Verify.
type Report struct {
	Records int64 // of the source, as read
	Entries int64 // of the sink, without tombstones
	// Differences are the first differences found, at most 100. Found counts all.
	Differences []Difference
	Found       int64
}

// Difference is one record that the sink does not have as it is.
type Difference struct {
	Kind, Name string
	// What is "missing", "outdated", or "extra": the sink has a record that does not exist.
	What string
}

const (
	maxDifferences = 100
	rechecks       = 3 // comparisons of a record before it counts as different
)

// Verify compares the documents of all records with the sink. Changes go on meanwhile, so a
// record counts as different only if it still is once the sink is level with the moment after it
// was read.
func (f *Follower) Verify(ctx context.Context) (Report, error) {
	var r Report
	if err := f.Wait(ctx, time.Now()); err != nil {
		return r, err
	}
	for _, kind := range slices.Sorted(maps.Keys(f.cfg.Kinds)) {
		if err := f.verifyRecords(ctx, kind, &r); err != nil {
			return r, err
		}
		if err := f.verifyEntries(ctx, kind, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// verifyRecords finds records that the sink lacks or has with another document.
func (f *Follower) verifyRecords(ctx context.Context, kind string, r *Report) error {
	for from, done := record.Cursor(nil), false; !done; {
		// A page from before the sink's position would lack what the sink has.
		page, err := f.source.Scan(ctx, kind, from, pageSize, f.position())
		if err != nil {
			return err
		}
		from, done = page.Next, page.Done
		var names []string
		for _, rec := range page.Records {
			if name, named := rec.Key.Name(); named {
				names = append(names, name)
			}
		}
		r.Records += int64(len(names))
		if err := f.compare(ctx, kind, names, f.digests(nil, page.Records), r); err != nil {
			return err
		}
	}
	return nil
}

// verifyEntries finds entries without a record.
func (f *Follower) verifyEntries(ctx context.Context, kind string, r *Report) error {
	for after, more := "", true; more; {
		entries, err := f.sink.Entries(ctx, kind, after, pageSize)
		if err != nil {
			return err
		}
		more = len(entries) == pageSize
		var names []string
		for _, e := range entries {
			if after = e.Name; !e.Dead {
				names = append(names, e.Name)
			}
		}
		r.Entries += int64(len(names))
		there, err := f.present(ctx, kind, names)
		if err != nil {
			return err
		}
		// verifyRecords has compared those that exist.
		if err := f.compare(ctx, kind, slices.DeleteFunc(names, func(n string) bool { _, ok := there[n]; return ok }), nil, r); err != nil {
			return err
		}
	}
	return nil
}

// compare compares the named records with the digests in want, which has the existing ones, and adds
// the differences to r.
func (f *Follower) compare(ctx context.Context, kind string, names []string, want map[string]Digest, r *Report) error {
	for attempt := 1; len(names) > 0; attempt++ {
		entries, err := f.sink.Lookup(ctx, kind, names)
		if err != nil {
			return err
		}
		found := differences(kind, names, want, entries)
		if len(found) == 0 {
			return nil
		}
		if attempt > rechecks {
			r.Found += int64(len(found))
			r.Differences = append(r.Differences, found[:min(len(found), maxDifferences-len(r.Differences))]...)
			return nil
		}
		// The records may have changed since they were read, and the sink since they changed.
		if err := f.Wait(ctx, time.Now()); err != nil {
			return err
		}
		names = names[:0:0]
		for _, d := range found {
			names = append(names, d.Name)
		}
		if want, err = f.present(ctx, kind, names); err != nil {
			return err
		}
	}
	return nil
}

// present returns the digests of the named records that exist now.
func (f *Follower) present(ctx context.Context, kind string, names []string) (map[string]Digest, error) {
	var sels []record.Selector
	for _, name := range names {
		sels = append(sels, record.Selector{Kind: kind, Key: record.StringKey(name)})
	}
	out := map[string]Digest{}
	err := f.read(ctx, sels, f.position(), func(_ []record.Selector, snap record.Snapshot) error {
		out = f.digests(out, snap.Records)
		return nil
	})
	return out, err
}

// position returns the version up to which the sink has the changes.
func (f *Follower) position() record.Version {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Position.At
}

// differences compares the digests of records with their entries.
func differences(kind string, names []string, want map[string]Digest, entries []Entry) (out []Difference) {
	have := map[string]Digest{}
	for _, e := range entries {
		if !e.Dead {
			have[e.Name] = e.Digest
		}
	}
	for _, name := range names {
		wanted, there := want[name]
		had, in := have[name]
		switch {
		case there && !in:
			out = append(out, Difference{kind, name, "missing"})
		case !there && in:
			out = append(out, Difference{kind, name, "extra"})
		case there && wanted != had:
			out = append(out, Difference{kind, name, "outdated"})
		}
	}
	return out
}

// digests adds the digests of the documents that item writes for records to a map, which may be nil.
func (f *Follower) digests(to map[string]Digest, recs []record.Record) map[string]Digest {
	if to == nil {
		to = map[string]Digest{}
	}
	for _, rec := range recs {
		if name, named := rec.Key.Name(); named && (rec.Doc != nil || rec.Err != nil) {
			doc, _ := f.document(rec) // item counts the error
			to[name] = doc.Digest()
		}
	}
	return to
}
