package secrets

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// watcher is where a watch sends what it sees, of the record that it names and that the
// message shows, if there is one.
type watcher[M message] func(e vrunner.EventType, name string, m M) error

// watchRequest is a watch request of either version.
type watchRequest interface {
	GetParent() string
	GetFilter() string
	GetReadMask() *fieldmaskpb.FieldMask
}

// watch sends what is there and then what changes, until ctx ends. It subscribes before
// it lists: what changes meanwhile is sent a second time, never left out.
func (t table[M]) watch(ctx context.Context, req watchRequest, out watcher[M]) error {
	w := watch[M]{table: t, mask: req.GetReadMask(), out: out, told: map[string]bool{}}
	var err error
	if w.in, err = t.pattern.scope(req.GetParent()); err != nil {
		return err
	}
	d := t.fresh().ProtoReflect().Descriptor()
	if w.filter, err = listing.ParseFilter(req.GetFilter(), d); err != nil {
		return err
	}
	if err := listing.CheckMask(w.mask, d); err != nil {
		return err
	}
	changes, err := t.store.Changes(ctx, Kind)
	if err != nil {
		return err
	}
	defer changes.Close()
	if err := t.each(ctx, w.in, w.send); err != nil {
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
		for _, d := range dirty {
			if err := w.follow(ctx, d.Name); err != nil {
				return err
			}
		}
	}
}

// watch is one client's stream.
type watch[M message] struct {
	table  table[M]
	in     scope
	filter listing.Filter
	mask   *fieldmaskpb.FieldMask
	out    watcher[M]
	told   map[string]bool // the secrets that the client has
}

// follow reads a secret that changed.
func (w watch[M]) follow(ctx context.Context, name string) error {
	if _, skip := w.in.skip(name); skip || !strings.HasPrefix(name, w.in.prefix) {
		return nil
	}
	rec, err := w.table.store.Get(ctx, Kind, name)
	if errors.Is(err, record.ErrNotFound) {
		return w.gone(name)
	}
	if err != nil {
		return err
	}
	m, err := w.table.decode(rec.Doc)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return w.send(name, m)
}

func (w watch[M]) send(name string, m M) error {
	if !w.filter.Eval(m) {
		return w.gone(name)
	}
	if err := listing.ApplyMask(m, w.mask); err != nil {
		return err
	}
	w.told[name] = true
	return w.out(vrunner.EventPut, name, m)
}

// gone tells of a secret that is deleted or no longer meets the filter, if the client
// has it.
func (w watch[M]) gone(name string) error {
	if !w.told[name] {
		return nil
	}
	delete(w.told, name)
	var none M
	return w.out(vrunner.EventDelete, name, none)
}
