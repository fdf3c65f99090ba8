package bbs

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/examples/bbs/outbound"
	"dbcontroller.dev/record"
)

// cellTimeout is the silence after which a cell counts as lost. It must exceed the time for which a
// switch holds writes: a held report would otherwise cost a healthy cell its instances.
const cellTimeout = 15 * time.Second

// report records that a cell is alive.
func (in instances[G, C]) report(ctx context.Context, req interface {
	proto.Message
	GetCellId() string
	GetRepUrl() string
}) error {
	if rep := req.GetRepUrl(); rep != "" {
		if err := outbound.URLError(rep); err != nil {
			return listing.Invalid("rep_url", "%s", err)
		}
	}
	now := time.Now()
	// A cell reports often, so its record almost always exists: change first, insert as the
	// exception.
	_, err := in.cells.Change(ctx, req, func(c C) error {
		in.forms.seen(c, now, req.GetRepUrl())
		return nil
	})
	if !errors.Is(err, record.ErrNotFound) {
		return err
	}
	// This is the cell's first report, so it has no record yet.
	c := in.forms.cell(req.GetCellId())
	in.forms.seen(c, now, req.GetRepUrl())
	if _, err = in.cells.Insert(ctx, c); errors.Is(err, record.ErrExists) {
		return nil // another report has inserted it just now
	}
	return err
}

// Lost returns the cells whose last report is older than cellTimeout. A cell without any report is
// not lost.
func (in instances[G, C]) Lost(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	return out, eachRecord(ctx, in.store, KindCells, "", func(rec record.Record) error {
		c, err := in.cells.Decode(rec)
		if err != nil {
			return err
		}
		if id, at := in.forms.seenAt(c); time.Since(at) > cellTimeout {
			out[id] = true
		}
		return nil
	})
}

// RepURL returns the address of a cell's stop endpoint, or "" if it has reported none.
func (in instances[G, C]) RepURL(ctx context.Context, cell string) (string, error) {
	c, err := in.cells.Find(ctx, cell)
	if errors.Is(err, record.ErrNotFound) {
		return "", nil // a client may claim for a cell that never reports
	}
	if err != nil {
		return "", err
	}
	return in.forms.rep(c), nil
}
