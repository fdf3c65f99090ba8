package integration_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dbcontroller.dev"
	"dbcontroller.dev/apiversion/rest"
	"dbcontroller.dev/config"
	"dbcontroller.dev/examples/sample"
	"dbcontroller.dev/integration/skew"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/coord/etcdcoord"
	controllerapp "dbcontroller.dev/internal/program/dbcontroller/app"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
	"dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/internal/program/server/samples"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/localsearch"
)

// Roles.
const (
	roleController  = "controller"  // with a break point
	roleServer      = "server"      // whose writes can be held
	roleApplication = "application" // an existing application, with package appclient
	roleEtcd        = "etcd"        // a member of an etcd cluster
	roleCommand     = "command"     // the command line of dbcontroller, as its main runs it
	roleSkew        = "skew"        // controller of a service in three versions, as its main runs it
	roleSkewServer  = "skew server" // its server
	roleSkewOlder   = "skew older"  // its server, of a build that knows two of them
)

// part is what a controller or server is told by its parent, as JSON in partVariable.
type part struct {
	ID     string
	Config string
	Break  breakPoint // of a controller
	Steps  bool       // of a controller: it stands still in each step of a switch
	API    string     // of a controller: address of its API; empty: any free port
	Hold   int        // of a server: writes to v1 that are held once it is armed
	Flags  []string   // of a server: those of the service
}

const partVariable = "DBCONTROLLER_INTEGRATION_PART"

// Commands that a parent writes to the standard input of a controller or server, a line
// each.
const (
	orderArm     = "arm"     // the break point, or the hold, counts from now on; it is answered
	orderRelease = "release" // what is held goes on
	orderStep    = "step"    // the switch goes on, to the next step
	orderRun     = "run"     // the same, and without standing still from now on
)

// event is what a child tells its parent, a line of JSON each.
type event struct {
	Reached string `json:",omitempty"` // the break point; of a server, a write that is held; orderArm
	Loaded  int    `json:",omitempty"` // groups that a Load of the copy applied
	Late    string `json:",omitempty"` // error of an Apply that was held and released
	Fenced  bool   `json:",omitempty"` // that it is record.ErrFenced
}

// eventFile is the descriptor that events go to.
const eventFile = 3

// play is the life of a child. It returns the exit code.
func play(role string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch role {
	case roleCommand:
		err = cli.Command(sample.Register).ExecuteContext(ctx)
	case roleSkew:
		err = dbcontroller.ControllerArgs(ctx, skew.Service(3), os.Args[1:], os.Stdout, os.Stderr)
	case roleSkewServer:
		err = dbcontroller.ServeArgs(ctx, skew.Service(3), os.Args[1:])
	case roleSkewOlder:
		err = dbcontroller.ServeArgs(ctx, skew.Service(2), os.Args[1:])
	case roleEtcd:
		err = playEtcd(ctx)
	case roleApplication:
		err = playApplication(ctx)
	case roleController:
		err = playPart(ctx, playController)
	case roleServer:
		err = playPart(ctx, playServer)
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbcontroller:", err)
		return cli.ExitStatus(err)
	}
	return 0
}

// stage is what a child plays its part with.
type stage struct {
	part
	config config.Config
	etcd   *etcdcoord.Store
	log    *zap.Logger
	orders <-chan string
	tell   func(event)
}

func playPart(ctx context.Context, act func(context.Context, stage) error) error {
	s := stage{tell: teller()}
	if err := json.Unmarshal([]byte(os.Getenv(partVariable)), &s.part); err != nil {
		return fmt.Errorf("read part: %w", err)
	}
	var err error
	if s.config, err = config.Load(s.Config, nil); err != nil {
		return err
	}
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder.EncodeDuration = zapcore.StringDurationEncoder
	s.log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.Lock(os.Stderr), zapcore.InfoLevel))
	if s.etcd, err = etcdcoord.Open(ctx, etcdcoord.Config{Endpoints: s.config.Etcd.Endpoints, Log: s.log}); err != nil {
		return err
	}
	defer s.etcd.Close() //nolint:errcheck // the process ends
	orders := make(chan string)
	s.orders = orders
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	return act(ctx, s)
}

func teller() func(event) {
	var mu sync.Mutex
	out := json.NewEncoder(os.NewFile(eventFile, "events"))
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(e) // a parent that is gone takes this process with it
	}
}

func playController(ctx context.Context, s stage) error {
	registry, carries, err := cli.Transformers(s.config, sample.Register)
	if err != nil {
		return err
	}
	b := newBreaker(s.Break, s.tell)
	steps := newStepper(s)
	go func() {
		for order := range s.orders {
			switch order {
			case orderArm:
				s.tell(event{Reached: orderArm}) // before it can reach its place
				b.arm()
			case orderRelease:
				close(b.goOn)
			case orderStep:
				steps.goOn <- struct{}{}
			case orderRun:
				close(steps.goOn)
			}
		}
	}()
	return controllerapp.New(s.config, registry, steps, controllerapp.Options{
		Options:   controller.Options{ID: s.ID, Carry: carries, Wrap: b.wrap, StartupWait: patience},
		APIListen: cmp.Or(s.API, "127.0.0.1:0"), OperatorListen: "127.0.0.1:0",
	}, s.log).Run(ctx)
}

func playServer(ctx context.Context, s stage) error {
	gate := faultstore.NewGate(s.Hold)
	toggle := faultstore.NewToggle(faultstore.On(gate, faultstore.Write))
	go func() {
		for {
			select {
			case op := <-gate.Held():
				s.tell(event{Reached: fmt.Sprintf("%s %v", op.Command, op.Kinds)})
			case order := <-s.orders:
				switch order {
				case orderArm:
					toggle.On()
					s.tell(event{Reached: orderArm})
				case orderRelease:
					gate.Open()
				}
			}
		}
	}()
	service := samples.Service()
	service.Search, service.REST = localsearch.Engine, rest.Front // as cmd/server
	own := flag.NewFlagSet("server", flag.ContinueOnError)
	service.Flags(own)
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	flags.AddGoFlagSet(own)
	if err := flags.Parse(s.Flags); err != nil {
		return err
	}
	server, err := app.New(s.config, service.Server(), app.Options{
		ID: s.ID, Listen: "127.0.0.1:0", OperatorListen: "127.0.0.1:0",
		Wrap: func(version string, c record.Client) record.Client {
			if version != "v1" || s.Hold == 0 {
				return c
			}
			return faultstore.WrapClient(c, toggle)
		},
	}, s.log)
	if err != nil {
		return err
	}
	return server.Serve(ctx, app.Connected(s.etcd))
}
