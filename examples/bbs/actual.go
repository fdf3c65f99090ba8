package bbs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// instances gives access to one version's process instances and to the cells that run them. G is
// the message of one index, C the message of a cell. Cells report the same in both versions, and
// package converge decides on both alike.
type instances[G, C proto.Message] struct {
	store     vrunner.Store
	table     *resource.Table[G]
	cells     *resource.Table[C]
	processes processes
	forms     forms[G, C]
}

// forms converts between a version's messages and the types of converge.
type forms[G, C proto.Message] struct {
	slot    func(G) converge.Slot
	set     func(G, converge.Slot)
	group   func(guid string, k converge.Key) G
	request func(name string) proto.Message // any request that names a slot
	cell    func(id string) C
	seen    func(c C, at time.Time, repURL string)
	seenAt  func(C) (id string, at time.Time)
	rep     func(C) (url string)
}

func newInstances[G, C proto.Message](store vrunner.Store, p processes, f forms[G, C]) instances[G, C] {
	return instances[G, C]{
		store: store, processes: p, forms: f,
		// The last id has the index and the definition.
		table: resource.New(store, resource.Config[G]{Kind: KindActualLRPs, Pattern: converge.NamePattern, MaxID: maxName + 16}),
		cells: resource.New(store, resource.Config[C]{Kind: KindCells, Pattern: "{cell_id}", NameField: "cell_id", MaxID: maxName}),
	}
}

// change applies a report of a cell or a client to one instance.
func (in instances[G, C]) change(ctx context.Context, req ofSlot, say func(*converge.Slot) error) (G, error) {
	name, err := in.resolve(ctx, req)
	if err != nil {
		var none G
		return none, err
	}
	// Change repeats the function if another writer comes first, so each report applies to the
	// newest state.
	return in.table.Change(ctx, in.forms.request(name), func(g G) error {
		s := in.forms.slot(g)
		if err := say(&s); err != nil {
			return connect.NewError(connect.CodeFailedPrecondition, err)
		}
		in.set(g, s)
		return nil
	})
}

// slot decodes a slot from its record.
func (in instances[G, C]) slot(rec record.Record) (guid string, k converge.Key, s converge.Slot, err error) {
	name, _ := rec.Key.Name() // List returns records with names only
	if guid, k, err = converge.SplitName(name); err != nil {
		return "", k, s, fmt.Errorf("%w: %w", apiversion.ErrStored, err)
	}
	g, err := in.table.Decode(rec)
	if err != nil {
		return guid, k, s, err
	}
	return guid, k, in.forms.slot(g), nil
}

// set writes a slot to its message, and gives a new instance its placement.
func (in instances[G, C]) set(g G, s converge.Slot) {
	if s.Instance != nil && s.Instance.Placement == "" {
		// The placement identifies an instance in both versions. The transformer finds definitions
		// by it.
		drawn := *s.Instance
		drawn.Placement = resource.RandomID()
		s.Instance = &drawn
	}
	in.forms.set(g, s)
}

// onCell is a request about an instance on a cell.
type onCell interface {
	ofSlot
	GetInstanceGuid() string
	GetCellId() string
}

func checkCell(req onCell) error {
	if err := checkName("instance_guid", req.GetInstanceGuid()); err != nil {
		return err
	}
	return checkName("cell_id", req.GetCellId())
}

// told applies a cell's report about an instance that it runs or takes.
func (in instances[G, C]) told(ctx context.Context, req onCell, say func(s *converge.Slot, guid, cell string, now time.Time) error) (G, error) {
	if err := checkCell(req); err != nil {
		var none G
		return none, err
	}
	return in.change(ctx, req, func(s *converge.Slot) error {
		return say(s, req.GetInstanceGuid(), req.GetCellId(), time.Now())
	})
}

func (in instances[G, C]) claim(ctx context.Context, req onCell) (G, error) {
	return in.told(ctx, req, (*converge.Slot).Claim)
}

func (in instances[G, C]) start(ctx context.Context, req onCell) (G, error) {
	return in.told(ctx, req, (*converge.Slot).Start)
}

func (in instances[G, C]) evacuate(ctx context.Context, req onCell) (G, error) {
	return in.told(ctx, req, (*converge.Slot).Evacuate)
}

func (in instances[G, C]) remove(ctx context.Context, req onCell) (G, error) {
	return in.told(ctx, req, func(s *converge.Slot, guid, cell string, _ time.Time) error {
		s.Remove(guid, cell)
		return nil
	})
}

func (in instances[G, C]) crash(ctx context.Context, req interface {
	onCell
	GetCrashReason() string
}) (G, error) {
	return in.told(ctx, req, func(s *converge.Slot, guid, cell string, now time.Time) error {
		return s.Crash(guid, cell, bounded(req.GetCrashReason()), now)
	})
}

func (in instances[G, C]) fail(ctx context.Context, req interface {
	ofSlot
	GetPlacementError() string
}) (G, error) {
	return in.change(ctx, req, func(s *converge.Slot) error { return s.Fail(bounded(req.GetPlacementError())) })
}

func (in instances[G, C]) retire(ctx context.Context, req ofSlot) (G, error) {
	return in.change(ctx, req, func(s *converge.Slot) error {
		s.RetireInstance()
		return nil
	})
}

// bounded returns the part of a reason that is stored.
func bounded(reason string) string {
	// A cut in the middle of a character would not be valid in a proto string.
	const most = 1024
	return strings.ToValidUTF8(reason[:min(len(reason), most)], "")
}

// timeOf and millisOf convert between times and the milliseconds in messages; 0 is the zero time.
func timeOf(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis)
}

func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
