// Package process is what the long-running commands have in common: flags, configuration,
// logging, and the connection to etcd, embedded or not. It does not own what a command does with
// them, nor databases.
package process

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dbcontroller.dev/access"
	"dbcontroller.dev/cmd/internal/etcdlogin"
	"dbcontroller.dev/config"
	"dbcontroller.dev/coord"
	"dbcontroller.dev/coord/etcdfile"
)

// DefaultDataDir is where an embedded etcd keeps its data when the configuration names
// no dataDir.
const DefaultDataDir = "dbcontroller-data"

// Flags are the common flags.
type Flags struct {
	Config       string
	ID           string
	LogLevel     string
	EmbeddedEtcd bool        // only for commands that may host it
	Host         Host        // hosts it; nil: this program has none in it
	Etcd         config.Etcd // what is given counts before the configuration
	Insecure     bool        // only for commands that listen
}

// Host starts an etcd in this process, which keeps what it has in a folder, and returns what
// clients connect to. ctx bounds the start only.
type Host func(ctx context.Context, dir string, log *zap.Logger) (endpoints []string, end func() error, err error)

// Register adds the flags to a command.
func (f *Flags) Register(fs *pflag.FlagSet) {
	fs.StringVar(&f.Config, "config", "", "configuration file (YAML); see docs/configuration.md")
	fs.StringVar(&f.ID, "id", "", "name of this process, unique among running ones; empty: generated")
	fs.StringVar(&f.LogLevel, "log-level", "info", "debug, info, warn or error")
	etcdFlags(fs, &f.Etcd)
	fs.BoolVar(&f.Insecure, "insecure", false, "listen for other machines without TLS or logins: anyone who reaches it may do everything")
}

// Process is a started process's surroundings.
type Process struct {
	Config config.Config
	Store  coord.Store
	Log    *zap.Logger
	ID     string
	// Embedded: etcd is in a process of this machine, and for this machine alone.
	Embedded bool
	close    []func() error
}

// Start loads the configuration and connects to etcd. What is wrong is one clear error.
func Start(ctx context.Context, f Flags) (*Process, error) {
	if f.Config == "" {
		return nil, errors.New("no configuration: give one with --config FILE")
	}
	level, err := zapcore.ParseLevel(f.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", f.LogLevel)
	}
	cfg, err := config.Load(f.Config, nil)
	if err != nil {
		return nil, err
	}
	if cfg.Etcd, err = merge(cfg.Etcd, f.Etcd); err != nil {
		return nil, err
	}
	p := &Process{Config: cfg, ID: f.ID, Log: NewLogger(level)}
	if p.ID == "" {
		host, _ := os.Hostname() // a name without the host is good enough
		p.ID = strings.ToLower(fmt.Sprintf("%s-%d-%.6s", host, os.Getpid(), rand.Text()))
	}
	if f.EmbeddedEtcd && f.Host == nil {
		return nil, fmt.Errorf("--embedded-etcd: no etcd is built into this program: run 'dbcontroller etcd --config %s' next to it, or name etcd.endpoints there", f.Config)
	}
	if err := p.connect(ctx, f); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// connect opens the coordination store: hosted here, as configured, or found in the data
// folder of a process that hosts it.
func (p *Process) connect(ctx context.Context, f Flags) error {
	dir := DataDir(p.Config)
	etcd := p.Config.Etcd
	switch {
	case f.EmbeddedEtcd:
		endpoints, end, err := f.Host(ctx, dir, p.Log)
		if err != nil {
			return err
		}
		p.close = append(p.close, end)
		etcd = config.Etcd{Endpoints: endpoints}
		p.Embedded = true
	case len(etcd.Endpoints) == 0:
		endpoints, err := etcdfile.Find(dir)
		if err != nil {
			err = &EtcdError{err}
			return fmt.Errorf("%w: start a controller there with --embedded-etcd, or 'dbcontroller etcd', or name etcd.endpoints in %s", err, filepath.Base(p.Config.Path))
		}
		etcd.Endpoints = endpoints
		p.Embedded = true
	}
	store, err := openEtcd(ctx, etcd, p.Log)
	var file *etcdlogin.FileError
	if err != nil && !errors.As(err, &file) {
		err = &EtcdError{err}
	}
	if err != nil {
		return fmt.Errorf("%w: %s in %s", err, etcdlogin.Correct(err, etcd, p.Embedded), filepath.Base(p.Config.Path))
	}
	p.close = append(p.close, store.Close)
	p.Store = store
	return nil
}

// Close ends what Start began, last first.
func (p *Process) Close() {
	for i := len(p.close) - 1; i >= 0; i-- {
		if err := p.close[i](); err != nil {
			p.Log.Debug("close", zap.Error(err))
		}
	}
	_ = p.Log.Sync() // standard error cannot always be synced
}

// DataDir is where an etcd of this machine keeps its data, and is found.
func DataDir(cfg config.Config) string { return cmp.Or(cfg.DataDir, DefaultDataDir) }

// NewLogger writes one JSON object a line to standard error. The audit is a stream of its own, which
// no level silences.
func NewLogger(level zapcore.Level) *zap.Logger { return newLogger(level, zapcore.Lock(os.Stderr)) }

func newLogger(level zapcore.Level, to zapcore.WriteSyncer) *zap.Logger {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	return zap.New(audited{zapcore.NewCore(zapcore.NewJSONEncoder(enc), to, zapcore.DebugLevel), level})
}

// audited writes what is of a level, and all of the audit.
type audited struct {
	zapcore.Core
	level zapcore.Level
}

func (a audited) Enabled(l zapcore.Level) bool {
	return l >= zapcore.InfoLevel || a.level.Enabled(l) // which logger it is Check knows alone
}

func (a audited) With(fields []zapcore.Field) zapcore.Core {
	return audited{a.Core.With(fields), a.level}
}

func (a audited) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	name := e.LoggerName[strings.LastIndexByte(e.LoggerName, '.')+1:]
	if name == access.AuditLog || a.level.Enabled(e.Level) {
		return ce.AddCore(e, a.Core)
	}
	return ce
}
