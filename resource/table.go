package resource

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/vrunner"
)

// Attempts bounds how often a resource is read or changed anew when others change it.
const Attempts = 10

// Config says what the resources of one type are.
type Config[M proto.Message] struct {
	// Kind of the records.
	Kind string
	// Pattern of the names: collections and ids in turn, as in
	// "projects/{project}/secrets/{secret}", or one id alone, "{guid}".
	Pattern string
	// NameField is the field of M that holds the name. "": name.
	NameField string
	// MaxID bounds each id of a name, in bytes. 0: 128.
	MaxID int
	// NewID makes the id of a resource that is created without one, RandomID for one. Nil:
	// clients must give it.
	NewID func() string
	// Revision is how M counts its changes. Zero: an int64 field named revision.
	Revision Revision[M]
	// Check refuses what clients must not set, with listing.Invalid, and may bring values
	// into their one form. Name and revision of m are set; before is what is there, an
	// invalid message (nil) for a new resource. Nil: all is accepted.
	Check func(ctx context.Context, m, before M) error
	// Sparse are fields that a record has only where they are not empty: an empty string, a
	// 0. A lens could not convert those of some fields: a 0 that means never is no time.
	Sparse []string
	// References are the fields that hold names of another service's resources, which has or will
	// have two names for each: filters of lists and watches find either. Nil: there are none.
	References []listing.Reference
	// Within narrows a list or watch by fields of its request that have no usual names. Nil:
	// none does.
	Within func(req proto.Message) Within
	// Parts are the further records of a resource. Nil: it has none.
	Parts *Parts[M]
	// Owner makes the resources children of those of another table. The zero value: they belong
	// to nothing, and a parent in their names need not exist.
	Owner Owner
}

// Within are the resources whose name begins with Prefix and that meet Where.
type Within struct {
	Prefix string
	Where  listing.Filter
}

// Revision is how a message says which of its states it is.
type Revision[M proto.Message] struct {
	// Field is compared in the database.
	Field string
	// First sets the field of a new message, so that it differs from that of any earlier
	// resource of the name; Next that of a change.
	First, Next func(M)
	// Text is what a client reads that has expected another one. Nil: the field and its value.
	Text func(M) string
}

// Table is the resources of one type in a store. Its methods may be called concurrently.
type Table[M proto.Message] struct {
	store    vrunner.Store
	cfg      Config[M]
	pattern  pattern
	message  protoreflect.MessageDescriptor
	name     protoreflect.FieldDescriptor
	revision protoreflect.FieldDescriptor
	children []child // added by New of their tables, before anything is served
}

// Declared is a store that knows which kinds there are. A server is checked with one at its start:
// writes of an undeclared kind would all fail.
type Declared interface {
	Declares(kind string) bool
}

// New returns the table of a store. It panics where the configuration does not fit M, as a
// mux does with a pattern: every test would meet it.
func New[M proto.Message](store vrunner.Store, cfg Config[M]) *Table[M] {
	t, err := newTable(store, cfg)
	if err != nil {
		panic(fmt.Sprintf("resource: table of %s: %v", cfg.Kind, err))
	}
	return t
}

func newTable[M proto.Message](store vrunner.Store, cfg Config[M]) (*Table[M], error) {
	var none M // of a generated type, whose nil pointer knows its descriptor
	t := &Table[M]{store: store, message: none.ProtoReflect().Descriptor()}
	if err := protodoc.CheckAliases(t.message); err != nil {
		return nil, err
	}
	if cfg.Kind == "" {
		return nil, fmt.Errorf("no Kind")
	}
	if d, ok := store.(Declared); ok {
		kinds := []string{cfg.Kind}
		if cfg.Parts != nil {
			kinds = append(kinds, cfg.Parts.Kind)
		}
		for _, kind := range kinds {
			if !d.Declares(kind) {
				return nil, fmt.Errorf("kind %s is not declared: name it in a transformer, or in Kinds of the Version", kind)
			}
		}
	}
	if cfg.MaxID <= 0 {
		cfg.MaxID = defaultMaxID
	}
	if cfg.NameField == "" {
		cfg.NameField = "name"
	}
	var err error
	if t.pattern, err = parsePattern(cfg.Pattern, cfg.MaxID); err != nil {
		return nil, err
	}
	if t.name = t.message.Fields().ByName(protoreflect.Name(cfg.NameField)); t.name == nil || t.name.Kind() != protoreflect.StringKind || t.name.IsList() {
		return nil, fmt.Errorf("%s has no string field %s to hold the name: set NameField", t.message.FullName(), cfg.NameField)
	}
	if cfg.Revision.Field == "" {
		cfg.Revision.Field = "revision"
	}
	t.revision = t.message.Fields().ByName(protoreflect.Name(cfg.Revision.Field))
	counts := cfg.Revision.First != nil && cfg.Revision.Next != nil
	if t.revision == nil || t.revision.IsList() || t.revision.IsMap() || !counts && t.revision.Kind() != protoreflect.Int64Kind {
		return nil, fmt.Errorf("%s has no int64 field %s to count its changes: add one, or set Revision with First and Next", t.message.FullName(), cfg.Revision.Field)
	}
	if cfg.Revision.Text == nil {
		cfg.Revision.Text = func(m M) string {
			return fmt.Sprintf("%s is %v", cfg.Revision.Field, m.ProtoReflect().Get(t.revision))
		}
	}
	if !counts {
		cfg.Revision.First = func(m M) { m.ProtoReflect().Set(t.revision, protoreflect.ValueOfInt64(firstRevision())) }
		cfg.Revision.Next = func(m M) {
			r := m.ProtoReflect()
			r.Set(t.revision, protoreflect.ValueOfInt64(r.Get(t.revision).Int()+1))
		}
	}
	if cfg.Check == nil {
		cfg.Check = func(context.Context, M, M) error { return nil }
	}
	if cfg.Within == nil {
		cfg.Within = func(proto.Message) Within { return Within{} }
	}
	for _, field := range append([]string{}, cfg.Sparse...) {
		if t.message.Fields().ByName(protoreflect.Name(field)) == nil {
			return nil, fmt.Errorf("%s has no field %s, which Sparse names", t.message.FullName(), field)
		}
	}
	for _, r := range cfg.References {
		if err := r.Check(t.message); err != nil {
			//lint:ignore ST1005 it is the name of a field of Config
			return nil, fmt.Errorf("References: %w", err)
		}
	}
	if cfg.Parts != nil && t.message.Fields().ByName(protoreflect.Name(cfg.Parts.Field)) == nil {
		return nil, fmt.Errorf("%s has no field %s, which Parts names", t.message.FullName(), cfg.Parts.Field)
	}
	t.cfg = cfg
	if cfg.Owner.Table != nil {
		if err := cfg.Owner.Table.adopt(t.pattern, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// firstRevision is drawn at random: a change compares the revision that it has read, and a
// resource that was deleted and made anew in between must not look the same. Below 2^52, so
// that JavaScript can hold it, too.
func firstRevision() int64 { return mathrand.Int64N(1<<52) + 1 }

// RandomID returns an id that nobody else draws: 26 lower-case letters and digits.
func RandomID() string { return strings.ToLower(rand.Text()) }

// fresh returns an empty message.
func (t *Table[M]) fresh() M {
	var none M
	return none.ProtoReflect().New().Interface().(M) //nolint:forcetypeassert // a message makes its own type
}

func (t *Table[M]) nameOf(m M) string { return m.ProtoReflect().Get(t.name).String() }

func (t *Table[M]) setName(m M, name string) {
	m.ProtoReflect().Set(t.name, protoreflect.ValueOfString(name))
}

// about is what clients are told of a store's error about a resource. Its own text names
// kinds and places that no API has.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, apiversion.Known(err))
}
