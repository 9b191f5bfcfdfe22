package controller

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/notify"
	"limpet/sync/source/archive"
	"limpet/sync/source/artifact"
	"limpet/sync/text"
	"limpet/sync/worker/sink"
)

// Reasons of the condition of a sink directory, beside those of package sink.
const (
	reasonUpToDate    = "UpToDate"
	reasonSinkUpdated = "SinkUpdated" // of an event
	reasonWriteFailed = "WriteFailed"
	reasonSinkRefused = "SinkRefused"
)

// readAhead is the size up to which a file is in memory while it is written, so that the next one
// is read meanwhile.
const readAhead = 1 << 20

func (c *Controller) sinkOwner(a *attempt) string {
	return c.kind.Kind + "/" + a.key.Namespace + "/" + a.key.Name
}

// sink brings the directory of a source on this host to its artifact, by what the directory has.
// Once the status was written it runs the program that follows a switch instead: that may hang. The
// source is as ready as before when one of them fails: its artifact is there for others.
func (c *Controller) sink(ctx context.Context, a *attempt) (done bool, err error) {
	dir := api.Annotation(a.obj, api.AnnoSinkDir)
	if dir == "" {
		a.sink = api.Condition{Type: api.ConditionSinkReady} // none: it is removed
	}
	if dir == "" || a.artifact.Digest == "" || a.sunk == a.artifact.Digest {
		return false, nil
	}
	a.sunk, a.sinkErr, a.program = a.artifact.Digest, nil, false
	list, _, _ := unstructured.NestedSlice(a.obj.Object, "status", "conditions")
	_, before := api.FindCondition(list, api.ConditionSinkReady)
	did, err := c.keepSink(ctx, a, dir)
	switch {
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	case err == nil && did == "" && (before["status"] == "True" || a.program && before["reason"] == sink.ReasonExecFailed):
		a.sink = api.Condition{}
	case err == nil:
		did = cmp.Or(did, dir+" is up to date")
		a.sink = api.Condition{Type: api.ConditionSinkReady, Status: "True", Reason: reasonUpToDate, Message: text.Line(did, maxMessage)}
		c.o.Logger.Info("sink directory is up to date", "name", a.key.Name, "namespace", a.key.Namespace, "result", did)
		c.note(ctx, a, api.ConditionSinkReady, notify.Info, reasonSinkUpdated, did, a.artifact)
	default:
		reason := reasonWriteFailed
		if e, is := errors.AsType[*sink.ExecError](err); is {
			reason = e.Reason
		} else if _, is := errors.AsType[*refusal](err); is {
			reason = reasonSinkRefused
		}
		problem := text.Redact(err.Error())
		a.sink = api.Condition{Type: api.ConditionSinkReady, Status: "False", Reason: reason, Message: onHost(problem)}
		if reason != reasonSinkRefused && reason != sink.ReasonExecRefused { // else a restart or the annotation ends it
			a.sinkErr = err
		}
		if before["message"] != a.sink.Message {
			c.note(ctx, a, api.ConditionSinkReady, notify.Error, reason, problem, a.artifact)
		}
	}
	return false, nil
}

// refusal is the error of a directory that is not permitted.
type refusal struct{ error }

// keepSink returns what it has done, "" for nothing.
func (c *Controller) keepSink(ctx context.Context, a *attempt, dir string) (did string, err error) {
	target, err := sink.Permit(dir, c.o.SinkPrefixes)
	if err != nil {
		return "", &refusal{fmt.Errorf("annotation %s: %w", api.AnnoSinkDir, err)}
	}
	annotation := api.Annotation(a.obj, api.AnnoSinkExec)
	if !a.written {
		commit, tree, err := sink.Check(target, c.sinkOwner(a))
		if err != nil || commit != artifact.Commit(a.artifact.Revision) || tree != a.artifact.TarDigest {
			changed, err := c.writeSink(ctx, a, target, annotation != "")
			if err != nil {
				return "", err
			}
			did = fmt.Sprintf("%s has %s, %s changed", dir, a.artifact.Revision, text.Plural(changed, "file"))
		}
	}
	if annotation == "" {
		return did, nil
	}
	argv, err := sink.PermitExec(annotation, c.o.SinkPrograms)
	if err != nil {
		return "", fmt.Errorf("annotation %s: %w", api.AnnoSinkExec, err)
	}
	if !a.written {
		a.program = true
		return did, nil
	}
	began := time.Now()
	output, ran, err := c.programs.Run(ctx, target, c.sinkOwner(a), a.artifact.Revision, argv)
	if !ran {
		return did, err
	}
	end := fmt.Sprintf("%s ended well at %s after %s: %s", argv[0], c.o.Now().UTC().Format(time.RFC3339),
		time.Since(began).Round(time.Millisecond), cmp.Or(output, "no output"))
	if err != nil {
		end = text.Redact(err.Error())
	}
	if unkept := c.o.Artifacts.Note(ctx, a.artifact, text.Line(end, maxMessage)); unkept != nil {
		c.o.Logger.Warn("keep output of program", "name", a.key.Name, "namespace", a.key.Namespace, "err", unkept)
	}
	return cmp.Or(did, dir+" has "+a.artifact.Revision) + "; " + end, err
}

// writeSink writes the content of the artifact into a directory and returns how many files have
// changed.
func (c *Controller) writeSink(ctx context.Context, a *attempt, target sink.Target, exec bool) (changed int, err error) {
	packed, err := c.o.Artifacts.OpenFile(ctx, a.artifact)
	if err != nil {
		return 0, err
	}
	defer packed.Close()
	var files []sink.File
	var total int64
	for f, err := range contents(packed, a.artifact) {
		sum := sha256.New()
		if total += f.Size; c.o.MaxBytes > 0 && total > c.o.MaxBytes { // a copied layer may be a bomb
			err = &archive.LimitError{Bytes: true, Limit: c.o.MaxBytes}
		}
		if err == nil {
			_, err = io.Copy(sum, f)
		}
		if err != nil {
			return 0, fmt.Errorf("read artifact: %w", err)
		}
		files = append(files, sink.File{Path: f.Path, Hash: sink.SHA256 + hex.EncodeToString(sum.Sum(nil)), Size: f.Size, Exec: f.Exec})
	}
	if _, err := packed.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	dir, err := sink.Open(ctx, target, c.sinkOwner(a))
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	dir.Exec = exec
	plan, err := dir.Plan(artifact.Commit(a.artifact.Revision), a.artifact.TarDigest, files)
	if err != nil {
		return 0, err
	}
	next, stop := iter.Pull2(contents(packed, a.artifact))
	defer stop()
	content := &content{next: next}
	changed = len(plan.Added) + len(plan.Changed) + len(plan.Removed)
	return changed, dir.Write(ctx, plan, content.open, func(sink.File) {})
}

// contents returns the files of an artifact, which is at its start.
func contents(packed *os.File, a artifact.Artifact) iter.Seq2[archive.File, error] {
	magic := make([]byte, len(artifact.Magic))
	if n, _ := packed.ReadAt(magic, 0); string(magic[:n]) == artifact.Magic {
		return archive.Files(packed)
	}
	one := archive.File{Reader: packed, Path: artifact.PlainFile(a), Size: a.Size}
	return func(yield func(archive.File, error) bool) { yield(one, nil) }
}

// content reads the files of an archive in their order.
type content struct {
	next func() (archive.File, error, bool)
	mu   sync.Mutex // guards next, and the file that it has returned
}

// open opens a file. A large one has to be closed before the next one is opened.
func (c *content) open(_ context.Context, want sink.File) (io.ReadCloser, error) {
	c.mu.Lock()
	for {
		f, err, more := c.next()
		switch {
		case err != nil || !more:
			c.mu.Unlock()
			return nil, cmp.Or(err, io.ErrUnexpectedEOF)
		case f.Path != want.Path:
		case f.Size > readAhead:
			return &unlocker{f, &c.mu}, nil
		default:
			defer c.mu.Unlock()
			data, err := io.ReadAll(f)
			return io.NopCloser(bytes.NewReader(data)), err
		}
	}
}

type unlocker struct {
	io.Reader
	*sync.Mutex
}

func (u *unlocker) Close() error {
	u.Unlock()
	return nil
}

// leaveSink does with the directory of a deleted source what the finalizers of Repositories say:
// without one of them it stays as it is, and a new source of the name takes it over. It returns the
// other finalizers.
func (c *Controller) leaveSink(ctx context.Context, a *attempt, finalizers []string) ([]string, error) {
	remove := slices.Contains(finalizers, api.FinalizerRemove)
	dir := api.Annotation(a.obj, api.AnnoSinkDir)
	rest := slices.DeleteFunc(slices.Clone(finalizers), func(name string) bool {
		return name == api.FinalizerRemove || name == api.FinalizerRelease
	})
	if dir == "" || len(rest) == len(finalizers) {
		return rest, nil
	}
	target, err := sink.Permit(dir, c.o.SinkPrefixes)
	if err == nil {
		_, err = sink.Leave(ctx, target, c.sinkOwner(a), remove && !slices.Contains(finalizers, api.FinalizerRelease))
	}
	if err == nil || ctx.Err() != nil {
		return rest, cmp.Or(context.Cause(ctx), err)
	}
	if status, _, _ := unstructured.NestedMap(a.obj.Object, "status"); status != nil { // so that it says why the source is not deleted
		why := onHost("it cannot be deleted while the annotation " + api.AnnoSinkDir + " stays: " + text.Redact(err.Error()))
		list, changed := api.SetConditions(a.obj, c.o.Now(),
			api.Condition{Type: api.ConditionSinkReady, Status: "False", Reason: reasonWriteFailed, Message: why})
		if status["conditions"] = list; changed {
			_, unwritten := c.apply(ctx, a.obj, status)
			err = errors.Join(err, unwritten)
		}
	}
	return nil, err
}

// onHost returns the message of a condition about a directory of this host.
func onHost(message string) string {
	host, _ := os.Hostname()
	return text.Line(host+": "+message, maxMessage)
}
