package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// told is one line of what a process of an application tells.
type told struct {
	Begin   string `json:"begin,omitempty"` // a write of this key to this state
	Ack     string `json:"ack,omitempty"`   // on this version
	Refused string `json:"refused,omitempty"`
	Unknown string `json:"unknown,omitempty"`
	Read    string `json:"read,omitempty"`   // this key was in this state
	Retry   string `json:"retry,omitempty"`  // a write is run again, at this version
	Asleep  bool   `json:"asleep,omitempty"` // it stands still within a write, before its first operation
	Fail    string `json:"fail,omitempty"`
	Gone    int    `json:"gone,omitempty"` // code of a read of what is no longer served
	State   string `json:"state,omitempty"`
	Version string `json:"version,omitempty"`
}

// applicationPart is what a process of an application is told. Without controllers it does
// not cooperate: it knows the old names and nothing else.
type applicationPart struct {
	Controllers []string `json:"controllers,omitempty"`
	URI         string   `json:"uri"`
	Database    string   `json:"database"`
	Name        string   `json:"name"`
	// Elsewhere has the connection strings of versions that are not at URI.
	Elsewhere map[string]string `json:"elsewhere,omitempty"`
	// Keep: it deletes nothing.
	Keep bool `json:"keep,omitempty"`
}

// What a process is ordered to stand still in, until the next line.
const (
	orderUpdate      = "update"
	orderTransaction = "transaction"
)

const applicationVariable = "APPLICATION"

// applicationProcess is a process of an application.
type applicationProcess struct {
	*child
	heard chan struct{} // closed when it tells nothing more

	mu      sync.Mutex
	acks    map[string]int // by version
	refused int
	gone    int
	reads   int
	retries int
	asleep  int
}

// applications are the processes of one application, and what they were told.
type applications struct {
	s      *system
	ledger *ledger
	start  func(part applicationPart) *exec.Cmd
	// keep: nobody deletes who may do so behind the fence, which lets deletes pass.
	keep bool
	// uris of the application's own, by version; nil: those of the system, at one place.
	uris map[string]string
}

// process starts a process.
func (a applications) process(name string, controllers ...string) *applicationProcess {
	s := a.s
	s.t.Helper()
	part := applicationPart{Controllers: controllers, URI: s.uris["v1"], Database: s.db["v1"].Name(), Name: name, Keep: a.keep}
	if a.uris != nil {
		part.URI, part.Elsewhere = a.uris["v1"], map[string]string{"v2": a.uris["v2"]}
	}
	cmd := a.start(part)
	read, write, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer write.Close()
	cmd.Stdout = write
	p := &applicationProcess{heard: make(chan struct{}), acks: map[string]int{}}
	p.child = spawn(s.t, name, cmd)
	go func() {
		defer close(p.heard)
		defer read.Close()
		for lines := bufio.NewScanner(read); lines.Scan(); {
			var line told
			if json.Unmarshal(lines.Bytes(), &line) == nil { // the last one of a process that is killed may be a part
				a.hear(p, line)
			}
		}
	}()
	return p
}

func (a applications) hear(p *applicationProcess, line told) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch l := a.ledger; {
	case line.Begin != "":
		l.Begin(line.Begin, line.State)
	case line.Ack != "":
		l.Ack(line.Ack)
		p.acks[line.Version]++
	case line.Refused != "":
		l.Refuse(line.Refused)
		p.refused++
	case line.Unknown != "":
		l.Unknown(line.Unknown)
	case line.Read != "":
		if err := l.Read(line.Read).Check(line.State, shown); err != nil {
			l.fail("%s on %s: %w", p.name, line.Version, err)
		}
		p.reads++
	case line.Retry != "":
		p.retries++
	case line.Asleep:
		p.asleep++
	case line.Gone != 0:
		p.gone++
	case line.Fail != "":
		l.fail("%s: %s", p.name, line.Fail)
	}
}

// counts are how many writes were acknowledged on a version, and refused, and how many reads
// were told that the version is gone.
func (p *applicationProcess) counts(version string) (acks, refused, gone int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acks[version], p.refused, p.gone
}

// goesOn waits until a process has written some more on a version.
func (p *applicationProcess) goesOn(ctx context.Context, version string) {
	p.t.Helper()
	before, _, _ := p.counts(version)
	eventually(ctx, p.t, p.name+" writes on "+version, func() error {
		if now, _, _ := p.counts(version); now < before+5 {
			return errTooFew
		}
		return nil
	})
}

// isTold waits until a process that does not cooperate has been refused some more.
func (p *applicationProcess) isTold(ctx context.Context, gone bool) {
	p.t.Helper()
	_, before, _ := p.counts("")
	eventually(ctx, p.t, p.name+" is refused", func() error {
		if _, now, reads := p.counts(""); now < before+5 || gone && reads == 0 {
			return errTooFew
		}
		return nil
	})
}

// fallsAsleep stops a process that has a write in its hand, an update or a transaction, and has sent nothing of it.
func (p *applicationProcess) fallsAsleep(ctx context.Context, in string) {
	p.t.Helper()
	before := p.count(&p.asleep)
	p.order(in)
	eventually(ctx, p.t, p.name+" stands still within its "+in, func() error {
		if p.count(&p.asleep) == before {
			return errTooFew
		}
		return nil
	})
	p.signal(ctx, syscall.SIGSTOP)
}

// wakes has it go on, where its write is refused, and waits until it is made where the data is.
func (p *applicationProcess) wakes(ctx context.Context) {
	p.t.Helper()
	before := p.count(&p.retries)
	p.signal(ctx, syscall.SIGCONT)
	p.order("go on")
	eventually(ctx, p.t, p.name+" does its write again", func() error {
		if p.count(&p.retries) == before {
			return errTooFew
		}
		return nil
	})
}

func (p *applicationProcess) count(of *int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *of
}

// end asks a process to end and waits for all that it told.
func (p *applicationProcess) end(ctx context.Context) {
	p.t.Helper()
	if code := p.terminate(patience); code != 0 {
		p.t.Errorf("%s ends with code %d", p.name, code)
	}
	<-p.heard
}

func inGo(t *testing.T) func(part applicationPart) *exec.Cmd {
	return func(part applicationPart) *exec.Cmd {
		return command(t, roleApplication, nil, []string{applicationVariable + "=" + part.text(t)})
	}
}

func inNode(t *testing.T) func(part applicationPart) *exec.Cmd {
	t.Helper()
	script := nodeClient(t)
	return func(part applicationPart) *exec.Cmd {
		cmd := exec.Command("node", script)
		cmd.Env = append(os.Environ(), applicationVariable+"="+part.text(t))
		return cmd
	}
}

// alternately starts processes in two languages by turns.
func alternately(next, other func(part applicationPart) *exec.Cmd) func(part applicationPart) *exec.Cmd {
	return func(part applicationPart) *exec.Cmd {
		start := next
		next, other = other, next
		return start(part)
	}
}

func (p applicationPart) text(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func connectApplication(uri, name string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(uri).SetAppName(name))
}
