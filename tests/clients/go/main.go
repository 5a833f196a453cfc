// A game on grpc-go with the SDK's own .proto: it keeps one Health stream and one Watch open for its whole life, on one
// connection with the transport as Go has it, and never opens them again. It takes commands as datagrams on UDP port 7777
// and answers each with one JSON object: what became of its streams.
//
// There is no generated code: messages are made from the descriptors in the file that is its only argument.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const (
	sdkAddress  = "localhost:9357"
	commandPort = 7777
	pingPeriod  = 200 * time.Millisecond
	callLimit   = 60 * time.Second
)

// What became of the streams.
type seen struct {
	Pings        int      `json:"pings"`
	HealthErrors []string `json:"healthErrors"`
	WatchErrors  []string `json:"watchErrors"`
	Updates      int      `json:"updates"`
	State        string   `json:"state"`
	Label        string   `json:"label"`
}

// The service, its connection, and what was seen of it.
type sdk struct {
	service    protoreflect.ServiceDescriptor
	connection *grpc.ClientConn
	// Guards seen.
	lock sync.Mutex
	seen seen
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: story-client DESCRIPTORS")
	}
	service, err := describe(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	connection, err := grpc.NewClient(sdkAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	game := &sdk{service: service, connection: connection}
	game.seen.HealthErrors, game.seen.WatchErrors = []string{}, []string{}
	if err := game.ping(); err != nil {
		log.Fatal(err)
	}
	if err := game.watch(); err != nil {
		log.Fatal(err)
	}
	log.Fatal(game.serve())
}

func describe(path string) (protoreflect.ServiceDescriptor, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(bytes, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}
	found, err := files.FindDescriptorByName("agones.dev.sdk.SDK")
	if err != nil {
		return nil, err
	}
	service, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no service", found.FullName())
	}
	return service, nil
}

// The method of this name, the path it is called by, and a message to call it with.
func (game *sdk) method(name string) (protoreflect.MethodDescriptor, string, *dynamicpb.Message) {
	method := game.service.Methods().ByName(protoreflect.Name(name))
	path := fmt.Sprintf("/%s/%s", game.service.FullName(), name)
	return method, path, dynamicpb.NewMessage(method.Input())
}

func (game *sdk) stream(name string) (grpc.ClientStream, *dynamicpb.Message, error) {
	method, path, message := game.method(name)
	shape := grpc.StreamDesc{
		StreamName:    name,
		ClientStreams: method.IsStreamingClient(),
		ServerStreams: method.IsStreamingServer(),
	}
	stream, err := game.connection.NewStream(context.Background(), &shape, path)
	return stream, message, err
}

// Opens the one Health stream and pings on it from now on.
func (game *sdk) ping() error {
	stream, empty, err := game.stream("Health")
	if err != nil {
		return err
	}
	go func() {
		for range time.Tick(pingPeriod) {
			err := stream.SendMsg(empty)
			game.lock.Lock()
			game.seen.Pings++
			if err != nil {
				game.seen.HealthErrors = append(game.seen.HealthErrors, err.Error())
			}
			game.lock.Unlock()
		}
	}()
	return nil
}

// Opens the one Watch and follows it to its end, which is an error.
func (game *sdk) watch() error {
	stream, empty, err := game.stream("WatchGameServer")
	if err != nil {
		return err
	}
	if err := stream.SendMsg(empty); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	server := game.service.Methods().ByName("WatchGameServer").Output()
	go func() {
		for {
			update := dynamicpb.NewMessage(server)
			err := stream.RecvMsg(update)
			game.lock.Lock()
			if err != nil {
				game.seen.WatchErrors = append(game.seen.WatchErrors, err.Error())
				game.lock.Unlock()
				return
			}
			game.seen.Updates++
			game.seen.State = part(part(update, "status").Message(), "state").String()
			labels := part(part(update, "object_meta").Message(), "labels").Map()
			if label := labels.Get(protoreflect.ValueOfString("story").MapKey()); label.IsValid() {
				game.seen.Label = label.String()
			}
			game.lock.Unlock()
		}
	}()
	return nil
}

func part(message protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return message.Get(message.Descriptor().Fields().ByName(name))
}

func (game *sdk) call(name string, texts map[protoreflect.Name]string) error {
	method, path, request := game.method(name)
	for field, text := range texts {
		request.Set(method.Input().Fields().ByName(field), protoreflect.ValueOfString(text))
	}
	limited, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return game.connection.Invoke(limited, path, request, dynamicpb.NewMessage(method.Output()))
}

func (game *sdk) command(text string) any {
	name, value, _ := strings.Cut(strings.TrimSpace(text), " ")
	var err error
	switch name {
	case "seen":
	case "ready":
		err = game.call("Ready", nil)
	case "allocate":
		err = game.call("Allocate", nil)
	case "annotation":
		err = game.call("SetAnnotation", map[protoreflect.Name]string{"key": "story", "value": value})
	case "shutdown":
		err = game.call("Shutdown", nil)
	default:
		err = fmt.Errorf("no command %q", name)
	}
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	game.lock.Lock()
	defer game.lock.Unlock()
	return game.seen
}

func (game *sdk) serve() error {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{Port: commandPort})
	if err != nil {
		return err
	}
	buffer := make([]byte, 2048)
	for {
		length, from, err := socket.ReadFromUDP(buffer)
		if err != nil {
			return err
		}
		answer, err := json.Marshal(game.command(string(buffer[:length])))
		if err != nil {
			return err
		}
		if _, err := socket.WriteToUDP(answer, from); err != nil {
			return err
		}
	}
}
