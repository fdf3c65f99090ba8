package blevesink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/custom"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/keyword"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	"github.com/blevesearch/bleve/v2/analysis/tokenizer/unicode"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	bolterrors "go.etcd.io/bbolt/errors"

	"dbcontroller.dev/internal/engine/sink"
)

// ErrInUse reports that another process has the folder open.
var ErrInUse = errors.New("another process uses this index: give each server a folder of its own")

// Config describes an index.
type Config struct {
	Folder string              // of this index alone; it is made if it is missing
	Kinds  map[string][]string // the searchable fields of each kind, as dotted paths
	// Revision is changed when the documents of records change in another way than by their fields.
	Revision string
}

// Index is an open index. Its methods are safe for concurrent use, except those that write: one at a
// time.
type Index struct {
	bleve     bleve.Index
	kinds     map[string][]string
	folder    string
	lock      *os.File
	searching chan struct{} // has one element for each running search
	close     func() error

	mu     sync.Mutex
	failed error // of the write after which the index must be opened again
}

var _ sink.Sink = (*Index)(nil)

// format is that of the documents in the index.
const format = 1

// Names of fields in documents of bleve. A declared field has the prefix of texts.
const (
	fieldLive       = "_live"       // the kind of a record
	fieldDead       = "_dead"       // the kind of a tombstone
	fieldGeneration = "_generation" // 16 hexadecimal digits
	fieldWithin     = "_within"     // the name, and each beginning of it that ends with a slash
	fieldEntry      = "_entry"      // guard and digest; stored only
	fieldName       = "n"
	fieldTexts      = "t:"
)

// words is the name of the analyzer of texts.
const words = "words"

// Keys of what the index keeps apart from documents.
var (
	keyState  = []byte("dbc_state")
	keySchema = []byte("dbc_schema")
)

// schema identifies the format and the fields of an index.
func (c Config) schema() ([]byte, error) {
	kinds := map[string][]string{}
	for kind, fields := range c.Kinds {
		kinds[kind] = slices.Sorted(slices.Values(fields))
	}
	return json.Marshal(struct {
		Format   int
		Kinds    map[string][]string
		Revision string
	}{format, kinds, c.Revision})
}

// Open opens the index in a folder. A missing, damaged or differently declared one is made anew.
func Open(c Config) (*Index, error) {
	analyzers.join()
	x, err := open(c)
	if err != nil {
		analyzers.leave()
	}
	return x, err
}

func open(c Config) (*Index, error) {
	schema, err := c.schema()
	if err != nil {
		return nil, err
	}
	m, err := mappingOf(c.Kinds)
	if err != nil {
		return nil, fmt.Errorf("fields of the search index: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(c.Folder), 0o700); err != nil {
		return nil, fmt.Errorf("make the search index: %w", err)
	}
	held, err := lock(c.Folder)
	if err != nil {
		return nil, err
	}
	var in bleve.Index
	if err := recovered(func() (err error) { in, err = opened(c, schema, m); return err }); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	x := &Index{bleve: in, kinds: c.Kinds, folder: c.Folder, lock: held, searching: make(chan struct{}, searches)}
	x.close = sync.OnceValue(func() error { // a second Close of bleve panics
		defer analyzers.leave()
		return recovered(in.Close)
	})
	return x, nil
}

// opened opens the index of bleve in a folder, or makes it anew.
func opened(c Config, schema []byte, m mapping.IndexMapping) (bleve.Index, error) {
	limits := map[string]any{"bolt_timeout": "1s"}
	var in bleve.Index
	err := recovered(func() (err error) { in, err = bleve.OpenUsing(c.Folder, maps.Clone(limits)); return err })
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", c.Folder, ErrInUse)
	case err == nil:
		have, err := in.GetInternal(keySchema)
		if err == nil && string(have) == string(schema) {
			return in, nil
		}
		if err := recovered(in.Close); err != nil {
			return nil, fmt.Errorf("close the search index of other fields: %w", err)
		}
	case !damage(err):
		return nil, fmt.Errorf("open the search index: %w", err)
	}
	if err := discard(c.Folder); err != nil {
		return nil, fmt.Errorf("make the search index anew: %w", err)
	}
	in, err = bleve.NewUsing(c.Folder, m, scorch.Name, scorch.Name, limits)
	if err != nil {
		return nil, fmt.Errorf("make the search index: %w", err)
	}
	// Without the schema, a killed process leaves an index that the next one makes anew.
	if err := in.SetInternal(keySchema, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("make the search index: %w", err), recovered(in.Close))
	}
	return in, nil
}

// analyzers runs the goroutines of the library that analyze documents. The library starts them when
// it is linked, also in programs that open no index.
var analyzers = stopped(new(workers))

type workers struct {
	mu   sync.Mutex
	open int // indexes
}

func stopped(a *workers) *workers {
	bleve.Config.SetAnalysisQueueSize(0)
	return a
}

func (a *workers) join() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open++; a.open == 1 {
		bleve.Config.SetAnalysisQueueSize(runtime.GOMAXPROCS(0))
	}
}

func (a *workers) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open--; a.open == 0 {
		bleve.Config.SetAnalysisQueueSize(0)
	}
}

// mappingOf declares the fields. Anything else in a document is ignored.
func mappingOf(kinds map[string][]string) (mapping.IndexMapping, error) {
	m := bleve.NewIndexMapping()
	// No words are left out, and none are shortened: a search for a word finds exactly that word.
	if err := m.AddCustomAnalyzer(words, map[string]any{"type": custom.Name, "tokenizer": unicode.Name, "token_filters": []string{lowercase.Name}}); err != nil {
		return nil, err
	}
	m.DefaultMapping = bleve.NewDocumentStaticMapping()
	field := func(name, analyzer string, index, store, places bool) {
		f := bleve.NewTextFieldMapping()
		f.Name, f.Analyzer, f.Index, f.Store, f.IncludeTermVectors = name, analyzer, index, store, places
		f.IncludeInAll, f.DocValues = false, false
		m.DefaultMapping.AddFieldMappingsAt(name, f)
	}
	for _, name := range []string{fieldLive, fieldDead, fieldGeneration, fieldWithin} {
		field(name, keyword.Name, true, false, false)
	}
	field(fieldEntry, keyword.Name, false, true, false)
	field(fieldName, words, true, false, true)
	for _, name := range slices.Sorted(maps.Values(textFields(kinds))) {
		field(name, words, true, false, true)
	}
	return m, m.Validate()
}

// textFields returns the names in bleve of all declared fields, by path.
func textFields(kinds map[string][]string) map[string]string {
	out := map[string]string{}
	for _, fields := range kinds {
		for _, path := range fields {
			out[path] = textField(path)
		}
	}
	return out
}

// State returns the stored State.
func (x *Index) State(ctx context.Context) (st sink.State, err error) {
	err = x.reading(ctx, func() error {
		b, err := x.bleve.GetInternal(keyState)
		if err != nil || b == nil {
			return err
		}
		if err := json.Unmarshal(b, &st); err != nil {
			return fmt.Errorf("state of the search index: %w", err)
		}
		return nil
	})
	return st, err
}

// Documents returns the number of documents, with tombstones.
func (x *Index) Documents() (n uint64, err error) {
	err = x.reading(context.Background(), func() (err error) { n, err = x.bleve.DocCount(); return err })
	return n, err
}

// Close closes the index. Later calls of other methods fail.
func (x *Index) Close() error {
	return errors.Join(x.close(), x.unlock())
}

// Remove closes the index and deletes its folder.
func (x *Index) Remove() error {
	// A damaged index may fail to close. Its files go all the same.
	err := errors.Join(x.close(), discard(x.folder))
	if gone := os.Remove(x.lock.Name()); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return errors.Join(err, x.unlock())
}

// unlock lets others open the folder.
func (x *Index) unlock() error {
	if err := x.lock.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil // an earlier call did it
}
