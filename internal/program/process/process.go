// Package process is the common part of long-running commands: flags, configuration, logging, and
// the connection to etcd. It owns neither the work of a command nor its databases. Begin to read at
// Start.
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

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdfile"
	"dbcontroller.dev/internal/program/etcdlogin"
)

// DefaultDataDir is the data directory of a local etcd if the configuration names none.
const DefaultDataDir = "dbcontroller-data"

// Flags are the common flags. Config is required.
type Flags struct {
	Config       string
	Configs      []string // of commands that take several files, instead of Config (RegisterSeveral)
	ID           string
	LogLevel     string
	EmbeddedEtcd bool        // run etcd in this process; needs Host
	Host         Host        // runs etcd in this process; nil: not available
	Etcd         config.Etcd // set fields override the configuration
	Insecure     bool        // for commands that listen
}

// Host starts an etcd in this process, with its data in dir, and returns its client endpoints. ctx
// limits only the start. end stops it.
type Host func(ctx context.Context, dir string, log *zap.Logger) (endpoints []string, end func() error, err error)

// Register adds the flags to a command.
func (f *Flags) Register(fs *pflag.FlagSet) {
	fs.StringVar(&f.Config, "config", "", "configuration file (YAML); see docs/configuration.md")
	f.register(fs)
}

// RegisterSeveral is Register for a command that takes the files of several deployments.
func (f *Flags) RegisterSeveral(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.Configs, "config", nil, "configuration file (YAML), or a folder of them with one file for each deployment; may be repeated; see docs/configuration.md")
	f.register(fs)
}

func (f *Flags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.ID, "id", "", "name of this process, unique among running ones; empty: generated")
	fs.StringVar(&f.LogLevel, "log-level", "info", "debug, info, warn or error")
	etcdFlags(fs, &f.Etcd)
	fs.BoolVar(&f.Insecure, "insecure", false, "listen for other machines without TLS or logins: anyone who reaches it may do everything")
}

// Process holds the resources of a started process. The caller closes it.
type Process struct {
	Config config.Config // of the first file
	// All are the configurations of Flags.Configs, in the order of their names in each folder.
	All   []config.Config
	Store coord.Store
	Log   *zap.Logger
	ID    string
	// Embedded reports that etcd runs in a process of this machine, for this machine only.
	Embedded bool
	flags    Flags
	close    []func() error
}

// Start loads the configuration and connects to etcd. It returns one error that names the mistake.
func Start(ctx context.Context, f Flags) (*Process, error) {
	p, err := Load(f)
	if err != nil {
		return nil, err
	}
	if err := p.Connect(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Load checks the flags and reads the configuration. It opens nothing, so a Process that never
// connects needs no Close.
func Load(f Flags) (*Process, error) {
	files, err := filesOf(f)
	if err != nil {
		return nil, err
	}
	level, err := zapcore.ParseLevel(f.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", f.LogLevel)
	}
	var all []config.Config
	for _, file := range files {
		cfg, err := config.Load(file, nil)
		if err != nil {
			return nil, err
		}
		// Flags win, so that one file serves machines with different logins.
		if cfg.Etcd, err = merge(cfg.Etcd, f.Etcd); err != nil {
			return nil, err
		}
		all = append(all, cfg)
	}
	if err := together(all); err != nil {
		return nil, err
	}
	f.Config = files[0]
	p := &Process{Config: all[0], All: all, ID: f.ID, Log: NewLogger(level), flags: f}
	if p.ID == "" {
		host, _ := os.Hostname() // a name without the host is good enough
		p.ID = strings.ToLower(fmt.Sprintf("%s-%d-%.6s", host, os.Getpid(), rand.Text()))
	}
	if f.EmbeddedEtcd && f.Host == nil {
		return nil, fmt.Errorf("--embedded-etcd: no etcd is built into this program: run 'dbcontroller etcd --config %s' next to it, or name etcd.endpoints there", f.Config)
	}
	return p, nil
}

// filesOf returns the files of a command, those of a folder by name. A folder holds one file for each
// deployment.
func filesOf(f Flags) ([]string, error) {
	named := f.Configs
	if f.Config != "" {
		named = []string{f.Config}
	}
	if len(named) == 0 {
		return nil, errors.New("no configuration given: use --config FILE")
	}
	var files []string
	for _, name := range named {
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() || f.Config != "" {
			files = append(files, name) // reading it reports the error
			continue
		}
		in, err := filepath.Glob(filepath.Join(name, "*.yaml"))
		if err != nil || len(in) == 0 {
			return nil, fmt.Errorf("--config %s: the folder has no *.yaml", name)
		}
		files = append(files, in...)
	}
	return files, nil
}

// together returns an error unless one process can run all deployments.
func together(all []config.Config) error {
	files := map[string]string{} // by deployment
	for _, cfg := range all {
		file := filepath.Base(cfg.Path)
		if other, taken := files[cfg.Deployment]; taken {
			return &config.Error{File: file, Key: "deployment", Value: cfg.Deployment, Want: "want another one than in " + other}
		}
		files[cfg.Deployment] = file
		if err := cfg.SharesProcess(all[0]); err != nil {
			return err
		}
	}
	return nil
}

// Connect opens the coordination store.
func (p *Process) Connect(ctx context.Context) error {
	if err := p.connect(ctx, p.flags); err != nil {
		// An etcd that was started for this process must not outlive the failed start.
		p.Close()
		return err
	}
	return nil
}

// connect opens the coordination store: hosted by this process, or configured, or found in the data
// directory of a hosting process.
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
	// Without endpoints, a local process hosts etcd and publishes its endpoints in a file.
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
	// Name the setting to correct: the causes of these errors look alike.
	if err != nil {
		return fmt.Errorf("%w: %s in %s", err, etcdlogin.Correct(err, etcd, p.Embedded), filepath.Base(p.Config.Path))
	}
	p.close = append(p.close, store.Close)
	p.Store = store
	return nil
}

// Close closes the resources that Start opened, in reverse order.
func (p *Process) Close() {
	for i := len(p.close) - 1; i >= 0; i-- {
		if err := p.close[i](); err != nil {
			p.Log.Debug("close", zap.Error(err))
		}
	}
	_ = p.Log.Sync() // standard error cannot always be synced
}

// DataDir returns the directory in which a local etcd keeps its data, and other processes find it.
func DataDir(cfg config.Config) string { return cmp.Or(cfg.DataDir, DefaultDataDir) }

// NewLogger returns a logger that writes one JSON object a line to standard error. No level
// silences the audit log.
func NewLogger(level zapcore.Level) *zap.Logger { return newLogger(level, zapcore.Lock(os.Stderr)) }

func newLogger(level zapcore.Level, to zapcore.WriteSyncer) *zap.Logger {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	return zap.New(audited{zapcore.NewCore(zapcore.NewJSONEncoder(enc), escaped{to}, zapcore.DebugLevel), level})
}

// escaped escapes characters of a line that JSON allows and a terminal obeys. Clients and users of a
// service choose some of the text.
type escaped struct{ zapcore.WriteSyncer }

func (e escaped) Write(p []byte) (int, error) {
	if _, err := e.WriteSyncer.Write([]byte(printable.JSON(string(p)))); err != nil {
		return 0, err
	}
	return len(p), nil // all of it is written, in another form
}

// audited writes entries of the level, and all entries of the audit log.
type audited struct {
	zapcore.Core
	level zapcore.Level
}

func (a audited) Enabled(l zapcore.Level) bool {
	return l >= zapcore.InfoLevel || a.level.Enabled(l) // Check decides, since only it knows the logger's name
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
