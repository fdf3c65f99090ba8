package bbs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// watcher is where a watch sends what it sees, of the record that it names and that the
// message shows, if there is one.
type watcher[M message] func(e vrunner.EventType, guid string, m M) error

// watchRequest is a watch request of either version.
type watchRequest interface {
	GetFilter() string
	GetReadMask() *fieldmaskpb.FieldMask
}

// watch sends what is there and then what changes, until ctx ends. It subscribes before
// it lists: what changes meanwhile is read a second time, never left out.
func (t table[M]) watch(ctx context.Context, req watchRequest, out watcher[M]) error {
	w := watch[M]{table: t, mask: req.GetReadMask(), out: out, told: map[string]digest{}}
	var err error
	if w.selected, err = t.selection("", req.GetFilter(), "", w.mask); err != nil {
		return err
	}
	kinds := []string{t.kind}
	if t.parts != nil {
		kinds = append(kinds, t.parts.kind)
	}
	changes, err := t.store.Changes(ctx, kinds...)
	if err != nil {
		return err
	}
	defer changes.Close()
	if err := t.each(ctx, w.selected, w.send); err != nil {
		return err
	}
	var none M
	if err := out(vrunner.EventLevel, "", none); err != nil {
		return err
	}
	for {
		dirty, err := changes.Next(ctx)
		if err != nil {
			return err
		}
		for _, guid := range t.changed(dirty) {
			if err := w.follow(ctx, guid); err != nil {
				return err
			}
		}
	}
}

// changed are the processes of dirty records, each once.
func (t table[M]) changed(dirty []vrunner.Dirty) []string {
	var guids []string
	seen := map[string]bool{}
	for _, d := range dirty {
		guid := d.Name
		if d.Kind != t.kind {
			guid, _, _ = strings.Cut(guid, "/")
		}
		if !seen[guid] {
			seen[guid] = true
			guids = append(guids, guid)
		}
	}
	return guids
}

// digest stands for a message that was sent. Two that differ have the same one only with
// a probability that does not matter.
type digest [16]byte

// watch is one client's stream.
type watch[M message] struct {
	table    table[M]
	selected selection
	mask     *fieldmaskpb.FieldMask
	out      watcher[M]
	told     map[string]digest // what the client has
}

// follow reads a process that changed.
func (w watch[M]) follow(ctx context.Context, guid string) error {
	rec, err := w.table.store.Get(ctx, w.table.kind, guid)
	if errors.Is(err, record.ErrNotFound) {
		return w.gone(guid)
	}
	if err != nil {
		return err
	}
	m, ok, err := w.table.show(ctx, w.selected, guid, rec)
	switch {
	case errors.Is(err, record.ErrMismatch):
		return nil // it changed while it was read: that change is still to come
	case err != nil:
		return err
	case !ok:
		return w.gone(guid)
	}
	return w.send(guid, m)
}

// send sends a process, unless the client has it as it is: the records of one change may
// come apart, and a change may be in fields that the client did not ask for.
func (w watch[M]) send(guid string, m M) error {
	if err := listing.ApplyMask(m, w.mask); err != nil {
		return err
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", guid, err)
	}
	sum := sha256.Sum256(raw)
	now := digest(sum[:len(digest{})])
	if before, known := w.told[guid]; known && before == now {
		return nil
	}
	w.told[guid] = now
	return w.out(vrunner.EventPut, guid, m)
}

// gone tells of a process that is deleted or no longer meets the filter, if the client
// has it.
func (w watch[M]) gone(guid string) error {
	if _, known := w.told[guid]; !known {
		return nil
	}
	delete(w.told, guid)
	var none M
	return w.out(vrunner.EventDelete, guid, none)
}
